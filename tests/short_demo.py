"""Settings for a short demo: all of its steps with as little work as possible."""

from __future__ import annotations

SHORT = {
    "first.require_learned": False,
    "first.epochs": 1,
    "agent.episodes": 4,
    "layer.epochs": 0,
    "last.epochs": 1,
    "voita.epochs": 1,
    "reward.folds": 2,  # the minimum
}
