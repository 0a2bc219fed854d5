"""Methods and rows that cost nothing, so that a study of a thousand runs shows what the study itself costs.

They are known within `known()`. A `ShortStudy` brings them along: a process or a Ray worker that unpickles one knows them from
then on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from auber.data import TASKS, TaskEntry
from auber.data.generated import make_agreement
from auber.data.task import TaskData
from auber.models.plan import PruningPlan
from auber.search.methods import Method, RankingChoice, RankingInputs
from auber.search.registry import METHODS
from auber.study import Study, make_study
from tests.small import SETTINGS

TASK = "soak"
MOST_METHODS = 49
_SLEEP = 0.001  # seconds
_QUICK = {
    **SETTINGS,
    "first.epochs": 1,
    "first.batch_size": 100,
}


def _sleep(work: RankingInputs) -> RankingChoice:
    time.sleep(_SLEEP)
    return RankingChoice(PruningPlan())


def _load(data: Path | None, seed: int) -> TaskData:
    return make_agreement(seed, num_train=16, num_dev=8)


@contextmanager
def known() -> Iterator[None]:
    """Let methods and rows be found by their names inside, and not any more outside."""
    _register()
    try:
        yield
    finally:
        for name in _METHODS:
            del METHODS[name]
        del TASKS[TASK]


def _register() -> None:
    METHODS.update(_METHODS)
    TASKS[TASK] = TaskEntry(TASK, "accuracy", "a few generated rows", _load)


_METHODS = {
    name: Method(name, "sleeps", choose_plan=_sleep, removes_heads=False, tunes=False)
    for name in (f"sleep-{number}" for number in range(MOST_METHODS))
}


class ShortStudy(Study):
    """A study of runs that sleep."""

    def __setstate__(self, state: dict[Any, Any]) -> None:
        _register()
        super().__setstate__(state)


def make_short_study(model: Path, runs: int) -> Study:
    """So many runs: blocks of a start and as many methods as there are, the last block a smaller one where need be."""
    blocks, rest = divmod(runs, MOST_METHODS + 1)
    if blocks == 0:
        blocks, methods = 1, rest - 1
    else:
        assert rest == 0, (
            f"runs must be fewer than {MOST_METHODS + 2} or a multiple of {MOST_METHODS + 1}, found {runs}"
        )
        methods = MOST_METHODS
    study = make_study(
        {
            "model": str(model),
            "tasks": [TASK],
            "methods": [f"sleep-{number}" for number in range(methods)],
            "seeds": list(range(blocks)),
            "preset": "paper",
            "settings": _QUICK,
        }
    )
    return ShortStudy(**vars(study))
