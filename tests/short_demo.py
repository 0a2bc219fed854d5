"""The settings of a short demonstration: all of its steps, each with as little work as it can have.

tests/test_demo.py does the demonstration whole; where it is there only to be run, it is short.
"""

from __future__ import annotations

SHORT = {
    "first.epochs": 1,
    "agent.episodes": 4,
    "layer.epochs": 0,
    "last.epochs": 1,
    "voita.epochs": 1,
    "reward.folds": 2,  # the fewest there can be
}
