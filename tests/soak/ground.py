"""The ground the faults are tried on: a job, what comes out of it when nothing happens, and ways to break and finish it."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.soak.job import Job, make_job, outcome_of
from tests.soak.nursery import Child, Nursery

_SLOW_DISK = 0.02  # seconds
_LONGEST = 120.0  # seconds that anything here may take


@dataclass(frozen=True)
class Ground:
    """A job in a folder, unbroken once; `length` is how many seconds that took."""

    folder: Path
    nursery: Nursery
    job: Job
    unbroken: dict[str, Any]
    length: float
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def new_folder(self) -> Path:
        """A place for the job to be broken in."""
        out = self.folder / f"broken-{next(self._numbers)}"
        out.mkdir()
        return out

    def kill_when(self, moment: Callable[[Path], bool], out: Path) -> None:
        """Start the pruning and kill it at a moment its folder shows."""
        child = self.nursery.start([self.job.prune(out)])
        wait_until(lambda: moment(out))
        os.kill(child.process, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL, child.said

    def fail(self, out: Path, *more: str, largest_file: int | None = None) -> str:
        """Start the pruning, which must end with one line and exit code 2; the line."""
        child = self.nursery.start([self.job.prune(out, *more)], largest_file=largest_file)
        assert child.wait() == 2, child.said
        return one_line(child)

    def finish(
        self, out: Path, *more: str, whole: bool = False, besides: tuple[str, ...] = ()
    ) -> None:
        """Prune on, and do the `whole` job where that was begun: as if nothing had happened, but for what is named `besides`."""
        prune, *rest = self.job.commands(out)
        child = self.nursery.start([[*prune, *more], *(rest if whole else ())])
        assert child.wait() == 0, child.said
        found = outcome_of(out)
        assert not whole or found.keys() == self.unbroken.keys()
        different = {key for key in found if found[key] != self.unbroken[key]}
        assert different <= set(besides), (
            f"{out}: {sorted(different)} differ from the unbroken run's"
        )


@contextmanager
def made_ground(folder: Path, *, is_quick: bool) -> Iterator[Ground]:
    """The ground, with the server of its processes; a quick one has less to do and a faster disk."""
    with Nursery(folder, slow_disk=0.0 if is_quick else _SLOW_DISK) as nursery:
        job = make_job(folder, is_quick=is_quick)
        outcomes, length = [], 0.0
        for name in (
            "unbroken",
            "again",
        ):  # the first one warms everything up, so the second says how long a job takes
            out = folder / name
            out.mkdir()
            child = nursery.start(job.commands(out))
            assert child.wait() == 0, child.said
            outcomes.append(outcome_of(out))
            length = time.monotonic() - child.started
        assert outcomes[0] == outcomes[1], "two unbroken runs are alike"
        yield Ground(folder, nursery, job, outcomes[0], length)


def one_line(child: Child) -> str:
    """What a process said, which must be one line of the program's own."""
    said = child.said
    assert said.startswith("auber: "), said
    assert said.count("\n") == 1, said
    return said.rstrip()


def wait_until(condition: Callable[[], bool]) -> None:
    """Return when it holds."""
    deadline = time.monotonic() + _LONGEST
    while not condition():
        assert time.monotonic() < deadline, "the moment never came"
        time.sleep(0.002)
