"""Where the blocks of a study are done: in this process, or in several on one machine.

An engine hands out blocks and hears of their runs from the folder alone. A worker that is lost (killed, out of memory)
is replaced: the run it was in is taken up again, and written down as failed when that has happened `RETRIES` times; the
rest of its block goes on. `Losses` keeps that account for every engine with workers.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Sequence
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess

from auber.errors import ConfigError
from auber.progress import Progress, Silent
from auber.study.block import Listener, Outcome, Work, carry_out, outcome_of
from auber.study.folder import StudyFolder
from auber.study.plan import Block

ENGINES = ("local", "processes", "ray")
RETRIES = 1
_LOOK_EVERY = 0.5  # seconds between looks at the folder
_BUSY = 75  # a worker's exit code for a block that another process is in; os.EX_TEMPFAIL where the system has it


def run_local(works: Sequence[Work], listener: Listener) -> None:
    """One block after the other, here."""
    for work in works:
        if not carry_out(work, listener):
            say_busy(work, listener)


def run_processes(works: Sequence[Work], jobs: int, listener: Listener) -> None:
    """Up to `jobs` blocks at a time, each in a fresh process of this machine; a GPU is shared between them."""
    require_pinned_threads(works, "processes")
    watch, losses = Watch(works, listener), Losses()
    # spawn: a forked child of a process that has used threads or a GPU can hang.
    context = multiprocessing.get_context("spawn")
    waiting = deque(works)
    active: dict[SpawnProcess, Work] = {}
    try:
        while waiting or active:
            while waiting and len(active) < jobs:
                work = waiting.popleft()
                process = context.Process(target=_child, args=(work,), daemon=True)
                process.start()
                active[process] = work
            wait([process.sentinel for process in active], timeout=_LOOK_EVERY)
            for process in [process for process in active if process.exitcode is not None]:
                work = active.pop(process)
                if process.exitcode == _BUSY:
                    say_busy(work, listener)
                elif process.exitcode and losses.take_up_again(
                    work, f"its process was lost (exit code {process.exitcode})"
                ):
                    waiting.append(work)
            watch.look()
    finally:
        for process in active:
            process.kill()
            process.join()


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


def _child(work: Work) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave_with_the_parent() -> None:
        parent.join()
        os._exit(1)

    # A stop by hand reaches parent and children alike; the parent ends the children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=leave_with_the_parent, daemon=True).start()
    if not work_quietly(work):
        raise SystemExit(_BUSY)
