"""Run the blocks of a study in this process, or in several processes of this machine.

Engines read from the folder how runs end. A run that raises an error is not retried. A run that
loses its worker (killed, out of memory) continues in another one; see `LostWorkers`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import NoReturn

from auber.errors import ConfigError, unknown_name
from auber.study.block import BlockJob, run_block
from auber.study.folder import Listener
from auber.study.plan import Block
from auber.system.locks import HeldError

ENGINES = ("local", "processes", "ray")
LOOK_INTERVAL = 0.5  # seconds between looks at the folder
_LEAVE_WITHIN = 10.0  # seconds that a stopped worker has to close its files


@dataclass(frozen=True)
class Engine:
    """What computes a study, and what each run gets there."""

    name: str = "local"
    jobs: int = 1  # blocks at a time on this machine
    num_cpus: float | None = None  # of a run on Ray; 1 if it is not given
    num_gpus: float | None = None  # of a run on Ray; 0 if it is not given
    retries: int = 10  # of a run that loses its worker and gets no further
    patience: float = 300  # seconds to wait for a node of Ray with room; an autoscaler needs some

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise ConfigError(unknown_name("engine", self.name, ENGINES))
        for option, value in (("--num-cpus", self.num_cpus), ("--num-gpus", self.num_gpus)):
            if value is not None and self.name != "ray":
                raise ConfigError(
                    f"{option} goes with --engine ray, found engine {self.name}; leave it out"
                )
            if value is not None and value < 0:
                raise ConfigError(f"{option} must be a number from 0, found {value:g}")
        if self.jobs < 1:
            raise ConfigError(f"--jobs must be a whole number from 1, found {self.jobs}")
        if self.name == "local" and self.jobs > 1:
            raise ConfigError(
                f"engine local does one run at a time, found --jobs {self.jobs}; "
                "add --engine processes or ray"
            )

    @property
    def resources(self) -> dict[str, float]:
        """Return what a run gets on Ray, by Ray's names."""
        shares = {"CPU": 1 if self.num_cpus is None else self.num_cpus, "GPU": self.num_gpus or 0}
        return {name: amount for name, amount in shares.items() if amount}


def run_local(jobs: Sequence[BlockJob], listener: Listener, engine: Engine) -> None:
    """Run one block after the other in this process."""
    for job in jobs:
        with ExitStack() as claim:
            if claim_block(job, listener, claim):
                run_block(job, listener)


def run_processes(jobs: Sequence[BlockJob], listener: Listener, engine: Engine) -> None:
    """Run several blocks at a time, each in a process of its own; they share a GPU."""
    watch, losses = FolderWatcher(jobs, listener), LostWorkers(engine.retries)
    waiting = deque(jobs)
    active: dict[SpawnProcess, tuple[BlockJob, ExitStack]] = {}
    # spawn: a forked child of a process that has used threads or a GPU can hang.
    context = multiprocessing.get_context("spawn")
    try:
        while waiting or active:
            while waiting and len(active) < engine.jobs:
                job, claim = waiting.popleft(), ExitStack()
                if claim_block(job, listener, claim):
                    process = context.Process(target=_work, args=(job,), daemon=True)
                    process.start()
                    active[process] = (job, claim)
            wait([process.sentinel for process in active], timeout=LOOK_INTERVAL)
            for process in [process for process in active if not process.is_alive()]:
                job, claim = active.pop(process)
                reason = f"its process was lost (exit code {process.exitcode})"
                if process.exitcode and losses.may_retry(job, reason):
                    waiting.append(job)
                claim.close()
            watch.look()
    finally:
        _stop(active)
        for _, claim in active.values():
            claim.close()


def _stop(processes: Iterable[SpawnProcess]) -> None:
    """End working processes; they have a moment to close files and release locks."""
    for process in processes:
        process.terminate()
    ends = time.monotonic() + _LEAVE_WITHIN
    for process in processes:
        process.join(max(0.0, ends - time.monotonic()))
        process.kill()
        process.join()


def claim_block(job: BlockJob, listener: Listener, claims: ExitStack) -> bool:
    """Claim a block until `claims` is closed; if another process has it, report that."""
    try:
        claims.enter_context(job.folder.claim(job.block))
    except HeldError as error:
        listener.say(f"{job.block}: {error.reason}; skipped")
        return False
    return True


class FolderWatcher:
    """Report runs that other processes settle, by looking at the folder."""

    def __init__(self, jobs: Sequence[BlockJob], listener: Listener) -> None:
        # A run that is repeated for its weights is settled already and not reported.
        self._open = {(job.block, name): job for job in jobs for name in job.unsettled()}
        self._listener = listener

    def look(self) -> None:
        """Report the runs settled since the last look."""
        for (block, name), job in list(self._open.items()):
            if job.folder.state(block, name).is_settled:
                del self._open[block, name]
                self._listener.settled(job.folder.outcome(block, name))


class LostWorkers:
    """Count lost workers, and decide whether a run is retried.

    A run that makes progress between two losses is always retried. A run that loses its worker more
    than `retries` times without progress (no new stage, no new score) has failed: it may end its
    workers itself, for example by the memory that it needs.
    """

    def __init__(self, retries: int) -> None:
        self._retries = retries
        self._losses: dict[tuple[Block, str], tuple[tuple[int, int], int]] = {}

    def may_retry(self, job: BlockJob, reason: str) -> bool:
        """Count a lost worker, record a failure after too many; return whether work is left."""
        unsettled = job.unsettled()
        if not unsettled:
            return False
        # Runs are done in order, so the worker was in the first unsettled one.
        key = (job.block, unsettled[0])
        place = job.folder.progress_of(*key)
        before, times = self._losses.get(key, (place, 0))
        times = times + 1 if place == before else 1
        self._losses[key] = (place, times)
        if times <= self._retries:
            return True
        job.folder.record_failure(
            *key,
            f"{reason}, {times} times without getting further: the run itself may end its worker, "
            "for example by the memory that it needs",
        )
        return len(unsettled) > 1


def run_block_quietly(job: BlockJob) -> None:
    """Run a block in a worker, without progress bars and advice of libraries."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    run_block(job, Listener())  # the folder reports what is done


class Terminated(SystemExit):
    """SIGTERM in a worker, raised so that its locks are released."""


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    # The system and the parent may both send one; the second must not interrupt the first.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated(128 + number)


def _work(job: BlockJob) -> None:
    """Run a block in a process that ends with its parent."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_the_parent() -> None:
        parent.join()
        os._exit(1)

    # Ctrl-C reaches parent and children; the parent ends the children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminate)
    threading.Thread(target=end_with_the_parent, daemon=True).start()
    run_block_quietly(job)
