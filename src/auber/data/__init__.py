"""The tasks with a name, and how each is loaded.

To add a task, add a `TaskEntry` below: its metric, a line about it, and a function from the data
folder (or None) and the seed to a checked `TaskData`. Loaders import heavy packages when
they are called, so listing the names is instant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from auber.data.glue import FORMATS, load_glue_from_hub, read_glue
from auber.data.task import TaskData
from auber.data.texts import Texts, make_texts
from auber.data.user_rows import make_task
from auber.errors import TaskError, unknown_name

__all__ = ["TASKS", "TaskData", "TaskEntry", "Texts", "load_task", "make_task", "make_texts"]


@dataclass(frozen=True)
class TaskEntry:
    """One task of the table."""

    metric: str
    doc: str
    load: Callable[[Path | None, int], TaskData]


def load_task(name: str, *, data: str | Path | None = None, seed: int = 0) -> TaskData:
    """Return the task of that name, read from the folder `data`; generated tasks use the seed."""
    if not isinstance(name, str):
        raise TaskError(
            f"task: a name or a TaskData is needed, found {type(name).__name__}; "
            "auber.make_task makes one of rows"
        )
    if name not in TASKS:
        raise TaskError(unknown_name("task", name, TASKS))
    return TASKS[name].load(None if data is None else Path(data), seed)


def _load_glue(name: str, data: Path | None, seed: int) -> TaskData:
    return load_glue_from_hub(name) if data is None else read_glue(name, data)


def _load_agreement(data: Path | None, seed: int) -> TaskData:
    from auber.data.generated import make_agreement

    if data is not None:
        raise TaskError(
            f"agreement: its rows are generated, found the data folder {data}; leave --data out"
        )
    return make_agreement(seed)


_AGREEMENT = "subject-verb agreement, generated; needs no download"

TASKS: dict[str, TaskEntry] = {
    "agreement": TaskEntry("accuracy", _AGREEMENT, _load_agreement),
    **{
        name: TaskEntry(layout.metric, layout.doc, partial(_load_glue, name))
        for name, layout in FORMATS.items()
    },
}
