"""Progress of long work: the library reports it here, and front ends show, log or store it.

A run is a sequence of named stages. Each stage counts its steps and reports numbers now and then.
Listeners never influence what is computed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

logger = logging.getLogger(__name__)

_LOG_INTERVAL = 60.0  # seconds


class Progress:
    """Count stages, work and steps, and pass every call on to `listeners`, in their order.

    A listener is any object that has some of these methods, such as another `Progress`; a front end
    that shows how much is done is a subclass. `Progress()` reports to nobody.
    """

    def __init__(self, *listeners: object) -> None:
        self._listeners = listeners
        self._work: list[float] = []  # of each stage
        self.finished = 0  # stages
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
        whole = sum(self._work)
        if not whole:
            return None
        done = sum(self._work[: self.finished])
        if self.total:
            done += self.done / self.total * sum(self._work[self.finished : self.finished + 1])
        return min(1.0, done / whole)

    def plan(self, stages: int) -> None:
        """Announce the number of stages."""
        self._work, self.finished = [1.0] * stages, 0
        self._notify("plan", stages)

    def weigh(self, work: Sequence[float]) -> None:
        """Announce the relative work of each planned stage."""
        self._work, self.finished = list(work), 0
        self._notify("weigh", work)

    def skip(self, stages: int) -> None:
        """Drop this many of the stages that would come next."""
        del self._work[self.finished : self.finished + stages]
        self._notify("skip", stages)

    def begin(self, stage: str, total: int) -> None:
        """Begin a stage of `total` steps, 0 if the number is unknown."""
        self.stage, self.total, self.done, self.note = stage, total, 0, ""
        self._notify("begin", stage, total)

    def step(self, done: int, note: str = "") -> None:
        """Report how many steps of the current stage are done."""
        self.done, self.note = done, note
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
    """Log each finished stage, a long stage once a minute, and messages, by default at INFO."""

    def __init__(
        self,
        log: Callable[[str], object] = logger.info,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._log, self._timer = log, timer
        self._began = self._logged = timer()

    def begin(self, stage: str, total: int) -> None:
        """Begin a stage."""
        super().begin(stage, total)
        self._began = self._logged = self._timer()

    def step(self, done: int, note: str = "") -> None:
        """Log the steps done and the time left, at most once a minute."""
        super().step(done, note)
        now = self._timer()
        if now - self._logged < _LOG_INTERVAL or not 0 < done < self.total:
            return
        self._logged = now
        left = describe_seconds((now - self._began) / done * (self.total - done))
        self._log(f"{self.stage}: {done} of {self.total} steps, about {left} left")

    def end(self) -> None:
        """Log how long the stage took."""
        stage, seconds = self.stage, describe_seconds(self._timer() - self._began)
        super().end()
        self._log(f"{stage}: {seconds} (stage {self.finished} of {self.planned})")

    def say(self, text: str) -> None:
        """Log a message."""
        self._log(text)


def describe_seconds(seconds: float) -> str:
    """Format a duration for people."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
