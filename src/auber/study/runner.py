"""Do the missing runs of a study, in this process, in several or on Ray."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from auber.errors import ConfigError, unknown_name
from auber.run.trackers import check_trackers
from auber.study.block import BlockJob
from auber.study.checks import check_runs, identify_rows, identify_weights
from auber.study.engines import ENGINES, RETRIES, run_local, run_processes
from auber.study.folder import Listener, Outcome, StudyFolder
from auber.study.plan import Block, PlacedRun, Study, select_runs
from auber.study.ray_engine import run_ray
from auber.system.locks import HeldError


@dataclass(frozen=True)
class Place:
    """Where a study is computed, and what each run gets there."""

    engine: str = "local"
    jobs: int = 1  # blocks at a time on this machine
    num_cpus: float | None = None  # of a run on Ray; 1 if it is not given
    num_gpus: float | None = None  # of a run on Ray; 0 if it is not given
    retries: int = RETRIES  # of a run that loses its worker and gets no further
    patience: float = 300  # seconds to wait for a node of Ray with room; an autoscaler needs some

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ConfigError(unknown_name("engine", self.engine, ENGINES))
        for option, value in (("--num-cpus", self.num_cpus), ("--num-gpus", self.num_gpus)):
            if value is not None and self.engine != "ray":
                raise ConfigError(
                    f"{option} goes with --engine ray, found engine {self.engine}; leave it out"
                )
            if value is not None and value < 0:
                raise ConfigError(f"{option} must be a number from 0, found {value:g}")
        if self.jobs < 1:
            raise ConfigError(f"--jobs must be a whole number from 1, found {self.jobs}")
        if self.engine == "local" and self.jobs > 1:
            raise ConfigError(
                f"engine local does one run at a time, found --jobs {self.jobs}; "
                "add --engine processes or ray"
            )


def run_study(
    study: Study,
    folder: StudyFolder,
    listener: Listener,
    *,
    runs: Sequence[PlacedRun] | None = None,
    place: Place | None = None,
    track: Sequence[str] = (),
    allow_upgrade: bool = False,
    command: str | None = None,
) -> list[Outcome]:
    """Do the missing ones of some runs (default: all), and return the outcome of each.

    `track` names experiment trackers. Runs that other versions of the packages began are resumed
    only with `allow_upgrade`.
    """
    trackers = check_trackers(track)
    place = place or Place()
    runs = select_runs(study) if runs is None else runs
    folder.check(study)
    pending = folder.pending(study, runs)
    check_runs(study, pending, elsewhere=place.engine == "ray")
    study = identify_rows(study, folder, pending, listener.say)
    study = identify_weights(study, pending)
    folder.open(study)
    for block in dict.fromkeys(block for block, _ in runs):
        # If another process works on the block, it takes care of failures and weights.
        with suppress(HeldError), folder.claim(block):
            for _, run in (placed for placed in runs if placed[0] == block):
                folder.forget_failure(block, run)
            if not study.keep_weights:
                folder.drop_weights(block)
    names: dict[Block, list[str]] = {}
    for block, run in folder.pending(study, runs):
        names.setdefault(block, []).append(run.name)
    resolved = study.resolve()
    jobs = [
        BlockJob(
            study=resolved,
            folder=StudyFolder(folder.path.resolve()),
            block=block,
            names=tuple(unfinished),
            command=command,
            track=trackers,
            allow_upgrade=allow_upgrade,
        )
        for block, unfinished in names.items()
    ]
    if jobs and place.engine == "local":
        run_local(jobs, listener)
    elif jobs and place.engine == "processes":
        run_processes(jobs, listener, workers=place.jobs, retries=place.retries)
    elif jobs:
        run_ray(
            jobs,
            listener,
            workers=place.jobs,
            resources={
                "CPU": 1 if place.num_cpus is None else place.num_cpus,
                "GPU": place.num_gpus or 0,
            },
            retries=place.retries,
            patience=place.patience,
        )
    return [folder.outcome(block, run) for block, run in runs]
