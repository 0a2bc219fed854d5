"""Studies: tasks x methods x seeds as runs in one folder; a call does the runs that are missing.

Reading a study does not import what runs it, which is loaded at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from auber.study.folder import Outcome, State, StudyFolder
from auber.study.plan import Block, Study, change_study, make_study, read_study, select_runs

if TYPE_CHECKING:
    from auber.study.engines import Place
    from auber.study.runner import run_study

__all__ = [
    "Block",
    "Outcome",
    "Place",
    "State",
    "Study",
    "StudyFolder",
    "change_study",
    "make_study",
    "read_study",
    "run_study",
    "select_runs",
]


def __getattr__(name: str) -> Any:
    if name not in ("Place", "run_study"):
        raise AttributeError(f"module 'auber.study' has no attribute '{name}'")
    return getattr(importlib.import_module("auber.study.runner"), name)
