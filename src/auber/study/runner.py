"""Do the missing runs of a study, in this process, in several or on Ray."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from auber.run.trackers import check_trackers
from auber.study.block import BlockJob
from auber.study.checks import check_runs, identify_rows, identify_weights
from auber.study.engines import Place, run_local, run_processes
from auber.study.folder import Listener, Outcome, StudyFolder
from auber.study.plan import Block, PlacedRun, Study, select_runs
from auber.study.ray_engine import run_ray
from auber.system.locks import HeldError


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
    engines = {"local": run_local, "processes": run_processes, "ray": run_ray}
    if jobs:
        engines[place.engine](jobs, listener, place)
    return [folder.outcome(block, run) for block, run in runs]
