"""Settings for a short demo: all of its steps with as little work as possible."""

from __future__ import annotations

SHORT = {"first.require_learned": False, "first.epochs": 1, "last.epochs": 1}
