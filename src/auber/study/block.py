"""Execute the runs of one block, one after the other.

A failed run is recorded, and the block continues; runs that depend on it are skipped. Nothing is
kept in memory between runs, so another process can continue a block at any point.
"""

from __future__ import annotations

import gc
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from auber import api
from auber.data.task import TaskData
from auber.errors import RunError
from auber.models import checkpoint
from auber.run import provenance
from auber.study.folder import Listener, State, StudyFolder
from auber.study.plan import GENERATED, REFERENCE, START, Block, Study, StudyRun
from auber.system.locks import held
from auber.system.progress import Progress

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BlockJob:
    """Runs of a block to be done, with all that another process needs to know."""

    study: Study
    folder: StudyFolder
    block: Block
    names: tuple[str, ...]  # the runs that are not complete
    command: str | None  # the command line, recorded in the results
    track: tuple[str, ...] = ()  # experiment trackers
    allow_upgrade: bool = False  # resume runs that other versions of the packages began

    def unsettled(self) -> list[str]:
        """Return the runs that have neither a result nor a failure, in order."""
        return [name for name in self.names if not self.folder.state(self.block, name).is_settled]


def run_block(job: BlockJob, listener: Listener) -> None:
    """Execute the runs of a job; the caller has claimed the block."""
    folder, block = job.folder, job.block
    task: TaskData | None = None
    for run in job.study.runs(block):
        if run.name not in job.names or _is_done(folder, block, run):
            continue
        states = {name: folder.state(block, name) for name in run.needs}
        missing = [name for name, state in states.items() if state is not State.COMPLETE]
        if missing:
            reason = f"left out: '{missing[0]}' has no result"
            folder.record_failure(block, run.name, reason, skipped=True)
        else:
            try:
                task = task or job.study.load_task(block.task, block.seed)
                _do_run(job, run, task, listener.working(block, run.name))
            # Any error, such as running out of memory, must not end the other runs.
            except Exception as error:
                logger.debug("%s %s failed", block, run.name, exc_info=True)
                folder.record_failure(block, run.name, error)
            gc.collect()
            if torch.cuda.is_available():  # leave its memory to other processes
                torch.cuda.empty_cache()
        listener.settled(folder.outcome(block, run))
        if not job.study.keep_weights:
            folder.delete_weights(block)


def _is_done(folder: StudyFolder, block: Block, run: StudyRun) -> bool:
    state = folder.state(block, run)
    if run.name == START and state is State.COMPLETE:  # repeated if its weights were deleted
        return folder.has_weights(block, START)
    return state.is_settled


def _do_run(job: BlockJob, run: StudyRun, task: TaskData, progress: Progress) -> None:
    block, study, folder = job.block, job.study, job.folder
    if run.from_start:
        _require_same_start(folder, study, block)
    options: dict[str, Any] = {
        "task": task,
        "config": study.config(block, run),
        "out": folder.prepare(block, run),
        "resume": "upgrade" if job.allow_upgrade else True,
        "progress": [progress, *job.track],
    }
    model = folder.run_path(block, START) if run.from_start else _model(study, folder, block, task)
    with provenance.recording(job.command):
        if run.method is None:
            api.finetune(model, **options)
            return
        heads = folder.run_path(block, REFERENCE) if run.is_matched else None
        origin = _model(study, folder, block, task) if study.needs_origin(block, run) else None
        api.prune(model, method=run.method, heads=heads, origin=origin, **options)


def _require_same_start(folder: StudyFolder, study: Study, block: Block) -> None:
    """Raise `RunError` if finished runs began with another fine-tuned model.

    That happens on a GPU, where a second fine-tuning may differ in the last bits.
    """
    results = {run.name: folder.result(block, run) for run in study.runs(block) if run.from_start}
    start = folder.result(block, START)
    others = [
        name for name, result in results.items() if start and result and start.start != result.start
    ]
    if others:
        raise RunError(
            f"{folder.block_path(block)}: the model was fine-tuned again, because its weights had "
            f"been deleted, and differs from the one that {', '.join(others)} began with, so the "
            "runs cannot be compared; delete this folder to repeat the block"
        )


def _model(study: Study, folder: StudyFolder, block: Block, task: TaskData) -> str | Path:
    """Return the model to fine-tune; the generated one is made once for a block."""
    if study.model != GENERATED:
        return study.model
    from auber.data.generated import build_model, build_tokenizer

    path = folder.block_path(block) / GENERATED
    with held(path.parent, ".making", wait=60.0):  # on Ray, two runs of a block may need it at once
        if not path.is_dir():
            # Without the classifier, which is untrained and would be taken for a trained one.
            encoder = build_model(task.num_labels, block.seed).base_model
            checkpoint.save(encoder, build_tokenizer(), path)
    return path
