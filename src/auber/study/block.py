"""The work on one block: its runs one after the other, each complete, failed or left out at the end.

A run that fails is written down and the block goes on; a run whose needs have failed is left out. Nothing is kept in
memory between runs: what is done is read from the folder, so a block that was cut goes on anywhere.
"""

from __future__ import annotations

import gc
import logging
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from auber import api
from auber.data.task import TaskData
from auber.errors import RunError
from auber.models import checkpoint
from auber.study.folder import State, StudyFolder
from auber.study.plan import EMBEDDED, MATCHED, START, Block, Study, StudyRun
from auber.system.locks import HeldError
from auber.system.progress import Progress

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Work:
    """A block to be done, with all that another process needs to know."""

    study: Study
    folder: Path
    block: Block
    names: tuple[str, ...]  # the runs that are not complete
    command: str | None  # the command line that asked for it, word for word
    track: tuple[str, ...] = ()  # experiment trackers; each run is one in them
    allow_upgrade: bool = (
        False  # whether runs that were begun with other versions of the packages go on
    )
    claimed: bool = False  # whoever hands it out keeps others out of the block

    def single_runs(self) -> list[Work]:
        """The same work, one run each; who takes it apart claims the block."""
        return [replace(self, names=(name,), claimed=True) for name in self.names]


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    block: Block
    run: str
    state: State
    error: str | None
    result: dict[str, Any] | None


class Listener(Protocol):
    """Whoever follows a study."""

    def working(self, block: Block, run: str) -> Progress:
        """A run begins in this process; who follows it."""

    def settled(self, outcome: Outcome) -> None:
        """A run has ended, here or elsewhere."""

    def say(self, text: str) -> None:
        """Something a person should read."""


def carry_out(work: Work, listener: Listener) -> str | None:
    """Do what is open of a block; where another process is at work in it, do nothing and say which."""
    folder = StudyFolder(work.folder)
    with ExitStack() as stack:
        if not work.claimed:
            try:
                stack.enter_context(folder.claim(work.block))
            except HeldError as error:
                return error.reason
        task: TaskData | None = None
        for run in work.study.runs(work.block):
            if run.name not in work.names or _is_settled(folder, work.block, run):
                continue
            missing = [
                name for name in run.needs if folder.state(work.block, name) is not State.COMPLETE
            ]
            if missing:
                folder.record_skip(work.block, run, missing[0])
            else:
                try:
                    with folder.attempt(work.block, run):
                        task = task or work.study.load_task(work.block.task, work.block.seed)
                        _do(work, folder, run, task, listener.working(work.block, run.name))
                # Whatever goes wrong in one run, out of memory or a bug, must not take the others with it.
                except Exception as error:
                    logger.debug("%s %s failed", work.block, run.name, exc_info=True)
                    folder.record_failure(work.block, run, error)
                _free_memory()
            listener.settled(outcome_of(folder, work.block, run.name))
            if not work.study.keep_weights:
                folder.drop_weights(work.block)
    return None


def outcome_of(folder: StudyFolder, block: Block, run: str) -> Outcome:
    """How a run that is settled ended."""
    result, failure = folder.result(block, run), folder.failure(block, run)
    state = folder.state(block, run) if result is None else State.COMPLETE
    return Outcome(block, run, state, failure.error if failure else None, result)


def _is_settled(folder: StudyFolder, block: Block, run: StudyRun) -> bool:
    """Whether there is nothing to do; a start that is asked for again has lost its weights."""
    state = folder.state(block, run)
    return state.is_settled and not (
        run.name == START and state is State.COMPLETE and not folder.has_weights(block, START)
    )


def _do(work: Work, folder: StudyFolder, run: StudyRun, task: TaskData, progress: Progress) -> None:
    block, study = work.block, work.study
    if run.from_start:
        _require_the_start_of_the_others(folder, study, block)
    out = folder.prepare(block, run)
    start = folder.run_path(block, START) if run.from_start else _model(study, folder, block, task)
    config = study.config(block, run)
    if run.method is None:
        api.finetune(
            start,
            task=task,
            config=config,
            out=out,
            resume=True,
            allow_upgrade=work.allow_upgrade,
            progress=progress,
            track=work.track,
            command=work.command,
        )
        return
    api.prune(
        start,
        task=task,
        method=run.method,
        heads_from=folder.run_path(block, MATCHED) if run.is_matched else None,
        origin=_model(study, folder, block, task) if study.needs_origin(block, run) else None,
        config=config,
        out=out,
        resume=True,
        allow_upgrade=work.allow_upgrade,
        progress=progress,
        track=work.track,
        command=work.command,
    )


def _require_the_start_of_the_others(folder: StudyFolder, study: Study, block: Block) -> None:
    """Raise `RunError` where the block's start was tuned again, as its weights were gone, and is not what its finished runs began with.

    On a GPU two tunings of one seed may differ in their last bits: runs from either cannot stand in one block.
    """
    results = {
        run.name: folder.result(block, run.name) for run in study.runs(block) if run.from_start
    }
    start = folder.result(block, START)
    others = [
        name
        for name, result in results.items()
        if start and result and result["start"] != start["start"]
    ]
    if others:
        raise RunError(
            f"{folder.block_path(block)}: the start was tuned again, its weights being gone, and is not to the bit what "
            f"{', '.join(others)} began with, so the runs cannot be compared; delete this folder and do the block anew"
        )


def _model(study: Study, folder: StudyFolder, block: Block, task: TaskData) -> str | Path:
    """What the first tuning begins with; the embedded model is made once for a block."""
    if study.model != EMBEDDED:
        return study.model
    from auber.data.generated import build_model, build_tokenizer

    path = folder.block_path(block) / EMBEDDED
    if not path.is_dir():
        # On Ray two runs of a block may make it at once: the first stays, for the other may be reading it already.
        with tempfile.TemporaryDirectory(prefix=f".{EMBEDDED}.", dir=path.parent) as scratch:
            made = Path(scratch) / EMBEDDED
            # without its classifier, which has learned nothing: one that is there would be taken for a trained one
            checkpoint.save(
                build_model(task.num_labels, block.seed).base_model, build_tokenizer(), made
            )
            try:
                made.rename(path)
            except OSError:
                if not path.is_dir():
                    raise
    return path


def _free_memory() -> None:
    """Give a GPU's memory back between runs: the next one, or another process on the same GPU, may want it."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
