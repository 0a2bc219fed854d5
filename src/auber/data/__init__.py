"""The tasks that can be named, and how each is loaded.

A new task is one `TaskEntry` below: its name, a line about it, and a function from the data folder (or None) and the
seed to a checked `TaskData`. Loaders import what they need when they are called, so that listing the names is instant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from auber.data.task import Rows, TaskData, check_task
from auber.data.user_rows import make_scored_rows, make_task
from auber.errors import TaskError, unknown_name

__all__ = [
    "TASKS",
    "Rows",
    "TaskData",
    "TaskEntry",
    "check_task",
    "load_task",
    "make_scored_rows",
    "make_task",
]


@dataclass(frozen=True)
class TaskEntry:
    """One task of the table."""

    name: str
    metric: str
    doc: str
    load: Callable[[Path | None, int], TaskData]


def load_task(name: str, *, data: str | Path | None = None, seed: int = 0) -> TaskData:
    """The task of that name; `data` is the folder it is read from, `seed` matters to generated tasks only."""
    if not isinstance(name, str):
        raise TaskError(
            f"task: a name or a TaskData is needed, found {type(name).__name__}; auber.make_task makes one of rows"
        )
    if name not in TASKS:
        raise TaskError(unknown_name("task", name, TASKS))
    return TASKS[name].load(None if data is None else Path(data), seed)


def _load_glue(name: str, data: Path | None, seed: int) -> TaskData:
    from auber.data.glue import load_glue_from_hub, read_glue

    return load_glue_from_hub(name) if data is None else read_glue(name, data)


def _load_agreement(data: Path | None, seed: int) -> TaskData:
    from auber.data.agreement import make_agreement

    if data is not None:
        raise TaskError(
            f"agreement: its rows are generated, found the data folder {data}; leave --data out"
        )
    return make_agreement(seed)


TASKS: dict[str, TaskEntry] = {
    entry.name: entry
    for entry in (
        TaskEntry(
            "agreement",
            "accuracy",
            "subject-verb agreement, generated; needs no download",
            _load_agreement,
        ),
        TaskEntry(
            "cola",
            "matthews",
            "is a sentence acceptable English (GLUE)",
            partial(_load_glue, "cola"),
        ),
        TaskEntry(
            "mrpc", "accuracy", "do two sentences say the same (GLUE)", partial(_load_glue, "mrpc")
        ),
        TaskEntry(
            "rte",
            "accuracy",
            "does the first text entail the second (GLUE)",
            partial(_load_glue, "rte"),
        ),
        TaskEntry(
            "wnli",
            "accuracy",
            "what a pronoun stands for, as entailment (GLUE)",
            partial(_load_glue, "wnli"),
        ),
    )
}
