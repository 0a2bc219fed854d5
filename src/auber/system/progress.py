"""How long work tells what it is doing: the library reports, the command line draws.

A run is a row of named stages; each counts its own steps, and tells numbers now and then. `Progress` is the whole interface,
so that a bar, a log line, the run's folder, an experiment tracker or a test can listen. A listener decides nothing: a run
computes the same whoever listens.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

logger = logging.getLogger(__name__)

_TELL_EVERY = 60.0  # seconds


class Progress(Protocol):
    """Whoever listens to a run."""

    def plan(self, stages: int) -> None:
        """The run will have this many stages."""

    def weigh(self, work: Sequence[float]) -> None:
        """How much work each of the planned stages is beside the others, in their order; behind `plan`, where that can be told."""

    def skip(self, stages: int) -> None:
        """So many of the planned stages fall away: those that would come next."""

    def begin(self, stage: str, total: int) -> None:
        """A stage starts; it has `total` steps, 0 where that cannot be known."""

    def step(self, done: int, note: str = "") -> None:
        """So many steps of the current stage are done."""

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        """Numbers by name, such as `layer-03/search/best_score`, at a step: an episode, a tuning step, a layer.

        At most once an episode of the search and about once a second of a tuning, so that a listener may take its time.
        """

    def end(self) -> None:
        """The current stage is over."""

    def say(self, text: str) -> None:
        """Something a person should read."""


class Silent:
    """Nobody listens; also the base of whoever listens to a part of it."""

    def plan(self, stages: int) -> None:
        """Nothing."""

    def weigh(self, work: Sequence[float]) -> None:
        """Nothing."""

    def skip(self, stages: int) -> None:
        """Nothing."""

    def begin(self, stage: str, total: int) -> None:
        """Nothing."""

    def step(self, done: int, note: str = "") -> None:
        """Nothing."""

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Nothing."""


class Way:
    """How far a run has come, for a listener that shows it: in work where that is told, else in stages."""

    def __init__(self) -> None:
        self._work: list[float] = []  # of each stage
        self._at = 0  # the present stage, or between two the next

    def plan(self, stages: int) -> None:
        """The run will have this many stages."""
        self.weigh([1.0] * stages)

    def weigh(self, work: Sequence[float]) -> None:
        """They are so much work."""
        self._work, self._at = list(work), 0

    def skip(self, stages: int) -> None:
        """So many of the stages that would come next fall away."""
        del self._work[self._at : self._at + stages]

    def end(self) -> None:
        """The present stage is over."""
        self._at += 1

    @property
    def planned(self) -> int:
        """How many stages there are."""
        return len(self._work)

    @property
    def finished(self) -> int:
        """How many of them are over."""
        return self._at

    def share(self, of_stage: float = 0.0) -> float | None:
        """The share of the whole that is done, with that share of the present stage; None where nothing is planned."""
        whole = sum(self._work)
        present = sum(self._work[self._at : self._at + 1])
        return (
            min(1.0, (sum(self._work[: self._at]) + of_stage * present) / whole) if whole else None
        )


class Logged(Silent):
    """Tells the log at level INFO: each stage when it is over, a long one once a minute, and what a person should read.

    It is who listens where a caller names nobody; a program that shows nothing at that level shows nothing of it.
    """

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer, self._way = timer, Way()
        self._stage, self._total = "", 0
        self._began = self._told = timer()

    def plan(self, stages: int) -> None:
        """The run will have this many stages."""
        self._way.plan(stages)

    def skip(self, stages: int) -> None:
        """Fewer stages than planned."""
        self._way.skip(stages)

    def begin(self, stage: str, total: int) -> None:
        """Remember when it began."""
        self._stage, self._total = stage, total
        self._began = self._told = self._timer()

    def step(self, done: int, note: str = "") -> None:
        """Tell where it is, if nothing was told within the last minute."""
        now = self._timer()
        if now - self._told < _TELL_EVERY or not 0 < done < self._total:
            return
        self._told = now
        left = describe_seconds((now - self._began) / done * (self._total - done))
        logger.info("%s: %d of %d steps, about %s left", self._stage, done, self._total, left)

    def end(self) -> None:
        """Tell how long it took."""
        self._way.end()
        seconds = describe_seconds(self._timer() - self._began)
        logger.info(
            "%s: %s (stage %d of %d)", self._stage, seconds, self._way.finished, self._way.planned
        )

    def say(self, text: str) -> None:
        """Tell it."""
        logger.info("%s", text)


class Several:
    """Several listeners as one; each hears everything, in this order."""

    def __init__(self, *listeners: Progress) -> None:
        self._listeners = listeners

    def plan(self, stages: int) -> None:
        """Hand it on."""
        for listener in self._listeners:
            listener.plan(stages)

    def weigh(self, work: Sequence[float]) -> None:
        """Hand it on."""
        for listener in self._listeners:
            listener.weigh(work)

    def skip(self, stages: int) -> None:
        """Hand it on."""
        for listener in self._listeners:
            listener.skip(stages)

    def begin(self, stage: str, total: int) -> None:
        """Hand it on."""
        for listener in self._listeners:
            listener.begin(stage, total)

    def step(self, done: int, note: str = "") -> None:
        """Hand it on."""
        for listener in self._listeners:
            listener.step(done, note)

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        """Hand it on."""
        for listener in self._listeners:
            listener.record(step, numbers)

    def end(self) -> None:
        """Hand it on."""
        for listener in self._listeners:
            listener.end()

    def say(self, text: str) -> None:
        """Hand it on."""
        for listener in self._listeners:
            listener.say(text)


def describe_seconds(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
