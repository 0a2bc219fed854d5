"""Studies: tasks x methods x seeds as runs in one folder, of which a call does what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from auber.errors import ConfigError, unknown_name
from auber.run.trackers import check_trackers
from auber.study.block import Listener, Outcome, Work, outcome_of
from auber.study.checks import check_runs
from auber.study.engines import ENGINES, run_local, run_processes
from auber.study.folder import State, StudyFolder
from auber.study.plan import (
    EMBEDDED,
    Block,
    Selection,
    Study,
    change_study,
    make_study,
    read_study,
    select_runs,
)
from auber.study.ray_engine import Request, run_ray
from auber.study.rows import know_rows
from auber.study.weights import know_weights
from auber.system.locks import HeldError

__all__ = [
    "ENGINES",
    "Block",
    "Listener",
    "Outcome",
    "Place",
    "Request",
    "Selection",
    "State",
    "Study",
    "StudyFolder",
    "Work",
    "change_study",
    "check_runs",
    "make_study",
    "outcomes_of",
    "read_study",
    "run_study",
    "select_runs",
]


@dataclass(frozen=True)
class Place:
    """Where a study is computed."""

    engine: str = "local"
    request: Request = field(default_factory=Request)

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ConfigError(unknown_name("engine", self.engine, ENGINES))
        if self.request.jobs < 1:
            raise ConfigError(f"--jobs must be a whole number from 1, found {self.request.jobs}")
        if self.engine == "local" and self.request.jobs > 1:
            raise ConfigError(
                f"engine local does one run at a time, found --jobs {self.request.jobs}; add --engine processes or ray"
            )


def run_study(
    study: Study,
    folder: StudyFolder,
    listener: Listener,
    *,
    selection: Selection | None = None,
    place: Place | None = None,
    track: Sequence[str] = (),
    allow_upgrade: bool = False,
    command: str | None = None,
) -> list[Outcome]:
    """Do what is missing of a part of a study (of all without one) and tell how every run of it stands.

    `track` names experiment trackers, in which every run is one of its own. Runs that were begun with other versions of the
    packages go on only with `allow_upgrade`.
    """
    trackers = check_trackers(track)
    place = place or Place()
    selection = selection or select_runs(study)
    folder.check(study)
    check_runs(study, folder, selection, elsewhere=place.engine == "ray")
    study = know_rows(study, folder, selection, listener.say)
    study = know_weights(study, folder, selection)
    folder.open(study)
    for block in selection.blocks:
        # Where another process is in the block, its failures and weights are that one's.
        with suppress(HeldError), folder.claim(block):
            folder.forget_failures(block, selection.runs(study, block))
            if not study.keep_weights:
                folder.drop_weights(block)
    works = [
        Work(
            _absolute(study),
            folder.path.resolve(),
            block,
            tuple(run.name for run in pending),
            command,
            trackers,
            allow_upgrade,
        )
        for block in selection.blocks
        if (pending := folder.pending(study, block, selection.runs(study, block)))
    ]
    if works and place.engine == "local":
        run_local(works, listener)
    elif works and place.engine == "processes":
        run_processes(works, place.request.jobs, listener, place.request.retries)
    elif works:
        run_ray(works, place.request, listener)
    return outcomes_of(study, folder, selection)


def outcomes_of(study: Study, folder: StudyFolder, selection: Selection) -> list[Outcome]:
    """How every run of a part of a study stands."""
    return [
        outcome_of(folder, block, run.name)
        for block in selection.blocks
        for run in selection.runs(study, block)
    ]


def _absolute(study: Study) -> Study:
    """The study with paths that mean the same wherever a worker stands."""
    is_folder = study.model != EMBEDDED and Path(study.model).exists()
    model = str(Path(study.model).resolve()) if is_folder else study.model
    own = {name: task.resolved() for name, task in study.own.items()}
    return replace(study, model=model, data=study.data and study.data.resolve(), own=own)
