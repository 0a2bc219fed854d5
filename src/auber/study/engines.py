"""Where the blocks of a study are done: in this process, or in several on one machine.

An engine hands out blocks and hears of their runs from the folder alone. A worker that is lost (killed, out of memory)
is replaced: the run it was in is taken up again, and written down as failed when that has happened more than `RETRIES`
times; the rest of its block goes on. `Losses` keeps that account for every engine with workers.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from auber.errors import ConfigError
from auber.progress import Progress, Silent
from auber.study.block import Listener, Outcome, Work, carry_out, outcome_of
from auber.study.folder import State, StudyFolder
from auber.study.plan import Block

ENGINES = ("local", "processes", "ray")
RETRIES = 1
_LOOK_EVERY = 0.5  # seconds between looks at the folder
_LEAVE_WITHIN = 10.0  # seconds a worker that is not needed any more has to end by itself


def run_local(works: Sequence[Work], listener: Listener) -> None:
    """One block after the other, here."""
    for work in works:
        if not carry_out(work, listener):
            say_busy(work, listener)


def run_processes(works: Sequence[Work], jobs: int, listener: Listener) -> None:
    """Up to `jobs` blocks at a time, each in a process of this machine; a GPU is shared between them.

    A process does one block after another, because its start takes as long as a short run. One in which a run has failed is
    replaced after the block: what an error leaves behind, such as a GPU context that answers nothing any more, stays there.
    """
    require_pinned_threads(works, "processes")
    watch, losses = Watch(works, listener), Losses()
    waiting = deque(works)
    workers: list[_Worker] = []
    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                workers.append(_Worker(waiting.popleft()))
            wait([source for worker in workers for source in worker.sources], timeout=_LOOK_EVERY)
            for worker in workers[:]:
                work, end = worker.work, worker.look()
                if end is None:
                    continue
                if end.is_busy:
                    say_busy(work, listener)
                if end.loss is not None and losses.take_up_again(work, end.loss):
                    waiting.append(work)
                if waiting and end.loss is None and not _has_failed(work):
                    worker.hand(waiting.popleft())
                else:
                    worker.dismiss()
                    workers.remove(worker)
            watch.look()
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()


@dataclass(frozen=True)
class _End:
    """How a worker came out of a block."""

    is_busy: bool = False  # another process is in the block
    loss: str | None = None  # how the worker itself was lost


class _Worker:
    """A process and the block it is in."""

    def __init__(self, work: Work) -> None:
        # spawn: a forked child of a process that has used threads or a GPU can hang.
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.hand(work)

    @property
    def sources(self) -> tuple[Any, ...]:
        """What stirs when there is something to look at: an answer, or the end of the process."""
        return self._connection, self.process.sentinel

    def hand(self, work: Work) -> None:
        """Give it the next block."""
        self.work = work
        with suppress(OSError):  # it was lost while it waited: the next look shows it
            self._connection.send(work)

    def look(self) -> _End | None:
        """How it came out of its block; None while it is at work."""
        try:
            if self._connection.poll():
                return _End(is_busy=not self._connection.recv())
        except (EOFError, OSError):  # the other end is closed: the process is ending
            self.process.join()
        if self.process.exitcode is None:
            return None
        return _End(loss=f"its process was lost (exit code {self.process.exitcode})")

    def dismiss(self) -> None:
        """Let the process end, and wait until its memory is free; it has nothing left to lose."""
        self._connection.close()
        self.process.join(_LEAVE_WITHIN)
        self.process.kill()
        self.process.join()


def _has_failed(work: Work) -> bool:
    folder = StudyFolder(work.folder)
    return any(folder.state(work.block, name) is State.FAILED for name in work.names)


class Watch:
    """Tells a listener of runs that were settled elsewhere, by looking at the folder."""

    def __init__(self, works: Sequence[Work], listener: Listener) -> None:
        self._open = {(work.block, name): StudyFolder(work.folder) for work in works for name in work.names}
        # A start that is made again for its weights already has a result: it is no news.
        self._open = {key: folder for key, folder in self._open.items() if not folder.state(*key).is_settled}
        self._listener = listener

    def look(self) -> None:
        """Report what has been settled since the last look."""
        for (block, name), folder in list(self._open.items()):
            if folder.state(block, name).is_settled:
                del self._open[block, name]
                self._listener.settled(outcome_of(folder, block, name))


class Losses:
    """How often a worker was lost in which run."""

    def __init__(self, retries: int = RETRIES) -> None:
        self._retries = retries
        self._lost: Counter[tuple[Block, str]] = Counter()

    def take_up_again(self, work: Work, reason: str) -> bool:
        """Count a loss, and the run it was in as failed if it was one too many; whether anything is left to do."""
        folder = StudyFolder(work.folder)
        # Runs are done in order, so the worker was in the first that is open.
        still_open = [name for name in work.names if not folder.state(work.block, name).is_settled]
        if not still_open:
            return False
        name = still_open[0]
        self._lost[work.block, name] += 1
        if self._lost[work.block, name] > self._retries:
            folder.record_failure(work.block, name, f"{reason}, {self._lost[work.block, name]} times")
        return True


class Nobody:
    """A listener in a worker: the folder tells the rest."""

    def working(self, block: Block, run: str) -> Progress:
        """Nobody follows."""
        return Silent()

    def settled(self, outcome: Outcome) -> None:
        """The folder shows it."""

    def say(self, text: str) -> None:
        """Nobody reads."""


def work_quietly(work: Work) -> bool:
    """Carry out a block in a worker process, the libraries' own bars and advice switched off."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return carry_out(work, Nobody())


def require_pinned_threads(works: Sequence[Work], engine: str) -> None:
    """Raise `ConfigError` unless every run computes on the same number of threads wherever it is done."""
    for work in works:
        for run in work.study.runs(work.block):
            if work.study.config(work.block, run).threads == 0:
                raise ConfigError(
                    f"engine {engine}: threads must be set, so that a result does not depend on where it is computed, "
                    "found 0 (as many as there are); write threads = 1 under [settings]"
                )


def say_busy(work: Work, listener: Listener) -> None:
    """Another process has claimed the block."""
    listener.say(f"{work.block}: another process is at work in it; left to it")


def _serve(connection: Connection[bool, Work]) -> None:
    """Carry out the blocks that come in, until the other end is closed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave_with_the_parent() -> None:
        parent.join()
        os._exit(1)

    # A stop by hand reaches parent and children alike; the parent ends the children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=leave_with_the_parent, daemon=True).start()
    while True:
        try:
            work = connection.recv()
        except EOFError:
            return
        connection.send(work_quietly(work))
