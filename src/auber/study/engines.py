"""Where the blocks of a study are done: in this process, or in several on one machine.

An engine hands out blocks and hears of their runs from the folder alone. A run that fails with an error of its own is not
tried again. A worker that is lost (killed, out of memory, its machine gone) is replaced, and the run it was in goes on where it
was: `Losses` keeps account of that for every engine with workers, and tells a run that is hit by chance from one that ends its
worker itself.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any, NoReturn

from auber.errors import ConfigError
from auber.study.block import Listener, Outcome, Work, carry_out, outcome_of
from auber.study.folder import State, StudyFolder
from auber.study.plan import Block
from auber.system.locks import HeldError
from auber.system.progress import Progress

ENGINES = ("local", "processes", "ray")
RETRIES = 5  # of a run that loses its worker and gets no further, while others lose none
MOST_LOSSES = 20  # of one run at one place, whatever else happens
LOOK_EVERY = 0.5  # seconds between looks at the folder
_LEAVE_WITHIN = 10.0  # seconds a worker that is not needed any more has to end by itself


def run_local(works: Sequence[Work], listener: Listener) -> None:
    """One block after the other, here."""
    for work in works:
        busy = carry_out(work, listener)
        if busy is not None:
            say_busy(work, busy, listener)


def run_processes(
    works: Sequence[Work], jobs: int, listener: Listener, retries: int = RETRIES
) -> None:
    """Up to `jobs` blocks at a time, each in a process of this machine; a GPU is shared between them.

    A process does one block after another, because its start takes as long as a short run. One in which a run has failed is
    replaced after the block: what an error leaves behind, such as a GPU context that answers nothing any more, stays there.
    """
    require_pinned_threads(works, "processes")
    watch, losses = Watch(works, listener), Losses(retries)
    waiting = deque(works)
    workers: list[_Worker] = []
    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                workers.append(_Worker(waiting.popleft()))
            wait([source for worker in workers for source in worker.sources], timeout=LOOK_EVERY)
            for worker in workers[:]:
                work, end = worker.work, worker.look()
                if end is None:
                    continue
                if end.busy is not None:
                    say_busy(work, end.busy, listener)
                if end.loss is not None:
                    _sign_off(work)
                    if losses.take_up_again(work, end.loss):
                        waiting.append(work)
                if waiting and end.loss is None and not _has_failed(work):
                    worker.hand(waiting.popleft())
                else:
                    worker.dismiss()
                    workers.remove(worker)
            if watch.look():
                losses.hear_of_progress()
    finally:
        _stop(workers)


@dataclass(frozen=True)
class _End:
    """How a worker came out of a block."""

    busy: str | None = None  # which other process is in the block
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
                return _End(busy=self._connection.recv())
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


def _stop(workers: Sequence[_Worker]) -> None:
    """End processes in the middle of their blocks: they have a moment to close their files and to give back their locks."""
    for worker in workers:
        worker.process.terminate()
    ends = time.monotonic() + _LEAVE_WITHIN
    for worker in workers:
        worker.process.join(max(0.0, ends - time.monotonic()))
        worker.process.kill()
        worker.process.join()
        _sign_off(worker.work)


def _sign_off(work: Work) -> None:
    """Give back the claim of a process that is gone: another machine cannot know that it is."""
    # Taken over from it and let go. Where somebody else has the block by now, the claim is theirs.
    with suppress(HeldError), StudyFolder(work.folder).claim(work.block):
        pass


def _has_failed(work: Work) -> bool:
    folder = StudyFolder(work.folder)
    return any(folder.state(work.block, name) is State.FAILED for name in work.names)


class Watch:
    """Tells a listener of runs that were settled elsewhere, by looking at the folder."""

    def __init__(self, works: Sequence[Work], listener: Listener) -> None:
        self._open = {
            (work.block, name): StudyFolder(work.folder) for work in works for name in work.names
        }
        # A start that is made again for its weights already has a result: it is no news.
        self._open = {
            key: folder for key, folder in self._open.items() if not folder.state(*key).is_settled
        }
        self._listener = listener

    def look(self) -> int:
        """Report what has been settled since the last look; how many runs that were."""
        before = len(self._open)
        for (block, name), folder in list(self._open.items()):
            if folder.state(block, name).is_settled:
                del self._open[block, name]
                self._listener.settled(outcome_of(folder, block, name))
        return before - len(self._open)


class Losses:
    """How often a worker was lost in which run, and whether to try once more.

    A run that gets further between two losses is hit by chance, however often: it goes on. One that is lost at the same place
    more than `retries` times, with no stage finished and no score added, may well be what ends its workers (the memory it takes,
    a library that crashes), and has failed. A loss is not held against it where another run has lost a worker since its last one:
    then something else ends them; only `MOST_LOSSES` at one place are the end of it in any case. A worker that was lost before it had begun the run, in its own start, says nothing
    about the run: that counts only as long as nothing else of the study is settled either, which means that no worker lives.
    """

    def __init__(self, retries: int = RETRIES) -> None:
        self._retries = retries
        self._inside: Counter[tuple[Block, str]] = (
            Counter()
        )  # losses at the place the run has reached
        self._own: Counter[tuple[Block, str]] = (
            Counter()
        )  # those of them with no other run's since the one before
        self._last: tuple[Block, str] | None = None  # the run that lost a worker last
        self._reached: dict[tuple[Block, str], tuple[int, int]] = {}
        self._outside: Counter[tuple[Block, str]] = (
            Counter()
        )  # losses before it was begun, with nothing settled since

    def hear_of_progress(self) -> None:
        """Some run has been settled: workers can live here."""
        self._outside.clear()

    def take_up_again(self, work: Work, reason: str) -> bool:
        """Count a loss, and the run it was in as failed if it was one too many; whether anything is left to do."""
        folder = StudyFolder(work.folder)
        # Runs are done in order, so the worker was in the first that is open.
        still_open = [name for name in work.names if not folder.state(work.block, name).is_settled]
        if not still_open:
            return False
        verdict = self._judge(folder, work.block, still_open[0])
        if verdict is None:
            return True
        folder.record_failure(work.block, still_open[0], f"{reason}, {verdict}")
        return len(still_open) > 1

    def _judge(self, folder: StudyFolder, block: Block, name: str) -> str | None:
        """Why a run that has lost its worker is given up; None where it is tried again."""
        run = (block, name)
        if not folder.end_attempt(block, name):
            self._outside[run] += 1
            if self._outside[run] <= self._retries:
                return None
            return f"{self._outside[run]} times before the run was begun: no worker lives long enough here"
        reached = folder.advance(block, name)
        if self._reached.get(run) != reached:
            self._reached[run], self._inside[run], self._own[run] = reached, 0, 0
        self._inside[run] += 1
        self._own[run] += self._inside[run] == 1 or self._last == run
        self._last = run
        if self._own[run] <= self._retries and self._inside[run] < MOST_LOSSES:
            return None
        return (
            f"{self._inside[run]} times without getting further: it may be the run that ends its worker, by the memory it takes "
            "for one"
        )


class Nobody:
    """A listener in a worker: the folder tells the rest."""

    def working(self, block: Block, run: str) -> Progress:
        """Nobody follows."""
        return Progress()

    def settled(self, outcome: Outcome) -> None:
        """The folder shows it."""

    def say(self, text: str) -> None:
        """Nobody reads."""


def work_quietly(work: Work) -> str | None:
    """Carry out a block in a worker process, the libraries' own bars and advice switched off; as `carry_out` tells."""
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


def say_busy(work: Work, busy: str, listener: Listener) -> None:
    """Another process has claimed the block; `busy` says which."""
    listener.say(f"{work.block}: {busy}; left to it")


class Terminated(SystemExit):
    """SIGTERM in a worker: it ends like any other error of no run, so that its locks are given back."""


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    # The system and the parent may both send one: the second must not cut the first short.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated(128 + number)


def _serve(connection: Connection[str | None, Work]) -> None:
    """Carry out the blocks that come in, until the other end is closed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave_with_the_parent() -> None:
        parent.join()
        os._exit(1)

    # A stop by hand reaches parent and children alike; the parent ends the children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminate)
    threading.Thread(target=leave_with_the_parent, daemon=True).start()
    while True:
        try:
            work = connection.recv()
        except EOFError:
            return
        connection.send(work_quietly(work))
