"""Progress of long work: the library reports it here, and front ends show, log or store it.

A run is a sequence of named stages. Each stage counts its steps and reports numbers now and then.
Listeners never influence what is computed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

logger = logging.getLogger(__name__)

LOG_INTERVAL = 30.0  # seconds between two lines of a log
_MEASURED = 4.0  # seconds of steps before there is an estimate


class Progress:
    """Count stages, work and steps, and pass every call on to `listeners`, in their order.

    A listener is any object that has some of these methods, such as another `Progress`; a front end
    that shows how much is done is a subclass. `Progress()` reports to nobody.
    """

    def __init__(self, *listeners: object, timer: Callable[[], float] = time.monotonic) -> None:
        self._listeners, self._timer = listeners, timer
        self._work: list[float] = []  # of each stage as a share of all, 0 if it was skipped
        self._part = 0.0, 1.0  # of the whole, which the next plan fills
        self._before = self._after = 0.0  # the other parts
        self._first: tuple[float, float] | None = None  # time and work done at the first step
        self.finished = 0  # stages, with those that were skipped
        self.stage: str | None = None
        self.total = self.done = 0  # steps of the current stage
        self.note = ""

    @property
    def planned(self) -> int:
        """The number of stages."""
        return len(self._work)

    @property
    def share(self) -> float | None:
        """The fraction of all work that is done, None if no work is planned."""
        whole = self._before + sum(self._work) + self._after
        return min(1.0, self._work_done / whole) if self._work and whole else None

    @property
    def seconds_left(self) -> float | None:
        """An estimate by the pace so far; None before there is any.

        Time counts from the first step, which may have waited for imports and memory.
        """
        if self._first is None:
            return None
        seconds, gained = self._timer() - self._first[0], self._work_done - self._first[1]
        if seconds < _MEASURED or gained <= 0:
            return None
        whole = self._before + sum(self._work) + self._after
        return seconds / gained * max(0.0, whole - self._work_done)

    @property
    def _work_done(self) -> float:
        done = self._before + sum(self._work[: self.finished])
        if self.total:
            done += self.done / self.total * sum(self._work[self.finished : self.finished + 1])
        return done

    def part(self, begin: float, end: float) -> None:
        """Let the next plan fill this part of the whole, such as one run of several: 0.2, 0.5."""
        self._part = begin, end
        self._notify("part", begin, end)

    def plan(self, work: Sequence[float]) -> None:
        """Announce the stages by their relative work."""
        self._work, self.finished = list(work), 0
        self._fill_part()
        if self._before == 0:
            self._first = None
        self._notify("plan", work)

    def _fill_part(self) -> None:
        self._before, end = self._part
        self._after = 1.0 - end
        scale = (end - self._before) / (sum(self._work) or 1.0)
        self._work = [scale * each for each in self._work]

    def skip(self, stages: int) -> None:
        """Count this many of the stages that would come next as finished without work."""
        for index in range(self.finished, min(self.finished + stages, self.planned)):
            self._work[index] = 0.0
        self.finished += stages
        if not any(self._work[: self.finished]):
            self._fill_part()
        self._notify("skip", stages)

    def begin(self, stage: str, total: int) -> None:
        """Begin a stage of `total` steps, 0 if the number is unknown."""
        self.stage, self.total, self.done, self.note = stage, total, 0, ""
        self._notify("begin", stage, total)

    def step(self, done: int, note: str = "") -> None:
        """Report how many steps of the current stage are done."""
        self.done, self.note = done, note
        if self._first is None and self._work:
            self._first = self._timer(), self._work_done
        self._notify("step", done, note)

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        """Report named numbers, such as `layer-03/search/best_score`, at a step.

        A step is an episode, a training step or a layer. This happens at most once per episode and
        about once per second of training, so listeners may take their time.
        """
        self._notify("record", step, numbers)

    def end(self) -> None:
        """End the current stage."""
        self.finished += 1
        self.stage, self.total, self.done = None, 0, 0
        self._notify("end")

    def say(self, text: str) -> None:
        """Report a message for the user."""
        self._notify("say", text)

    def _notify(self, method: str, *values: object) -> None:
        for listener in self._listeners:
            listen = getattr(listener, method, None)
            if listen is not None:
                listen(*values)


class LogProgress(Progress):
    """Log each finished stage, a line every half minute, and messages, by default at INFO."""

    def __init__(
        self,
        log: Callable[[str], object] = logger.info,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(timer=timer)
        self._log = log
        self._began = self._logged = timer()

    def begin(self, stage: str, total: int) -> None:
        """Begin a stage."""
        super().begin(stage, total)
        self._began = self._timer()

    def step(self, done: int, note: str = "") -> None:
        """Log the steps done and the time left, at most every half minute."""
        super().step(done, note)
        self.tick()

    def tick(self) -> None:
        """Log what is under way unless a line was logged within the last half minute."""
        if self._timer() - self._logged < LOG_INTERVAL:
            return
        work = f"{self.done} of {self.total} steps" if self.total else "working"
        self.say(f"{f'{self.stage}: ' if self.stage else ''}{work}{self._describe_run()}")

    def end(self) -> None:
        """Log how long the stage took."""
        stage, seconds = self.stage, describe_seconds(self._timer() - self._began)
        super().end()
        self.say(f"{stage}: {seconds}{self._describe_run()}")

    def say(self, text: str) -> None:
        """Log a message."""
        self._logged = self._timer()
        self._log(text)

    def _describe_run(self) -> str:
        """Return how much of the whole run is done, and the time left."""
        if self.share is None:
            return ""
        left = self.seconds_left
        about = f", about {describe_seconds(left)} left" if left and left >= 1 else ""
        return f" ({100 * self.share:.0f} % of the run{about})"


def describe_seconds(seconds: float) -> str:
    """Format a duration for people."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
