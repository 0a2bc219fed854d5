"""Estimate the remaining time of a study from the times of its finished runs.

A run is expected to take the mean time of the finished runs of its method on its task, else of its
method on any task.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from auber.study.folder import StudyFolder
from auber.study.plan import PlacedRun, Study, select_runs


class Clock:
    """The times of finished runs; the method of the run that fine-tunes is None."""

    def __init__(self) -> None:
        self._times: list[tuple[str, str | None, float]] = []

    def add(self, task: str, method: str | None, seconds: float) -> None:
        """Add a finished run."""
        self._times.append((task, method, seconds))

    def expect(self, task: str, method: str | None) -> float | None:
        """Return the expected seconds of a run, None if no run of its method has finished."""
        same = [(where, seconds) for where, what, seconds in self._times if what == method]
        times = [s for where, s in same if where == task] or [s for _, s in same]
        return fmean(times) if times else None

    def estimate(self, runs: Sequence[PlacedRun]) -> tuple[float, int]:
        """Return the expected seconds of these runs, and the number of those not included.

        Runs are not included if no run of their method has finished.
        """
        expected = [self.expect(block.task, run.method) for block, run in runs]
        known = [seconds for seconds in expected if seconds is not None]
        return sum(known), len(expected) - len(known)

    def guess(self, runs: Sequence[PlacedRun]) -> float | None:
        """Return the seconds of these runs; one of an unmeasured kind takes the mean of all."""
        if not self._times or not runs:
            return None
        seconds, unknown = self.estimate(runs)
        return seconds + unknown * fmean(seconds for *_, seconds in self._times)


def read_clock(study: Study, folder: StudyFolder) -> Clock:
    """Return the times of all finished runs of a study."""
    clock = Clock()
    for block, run in select_runs(study):
        result = folder.result(block, run)
        if result is not None:
            clock.add(block.task, run.method, result.cost.seconds["total"])
    return clock
