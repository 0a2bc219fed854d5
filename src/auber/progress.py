"""How long work tells what it is doing: the library reports, the command line draws.

A run is a row of named stages; each counts its own steps, and tells numbers now and then. `Progress` is the whole interface,
so that a bar, a log line, the run's folder, an experiment tracker or a test can listen. A listener decides nothing: a run
computes the same whoever listens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Progress(Protocol):
    """Whoever listens to a run."""

    def plan(self, stages: int) -> None:
        """The run will have this many stages."""

    def skip(self, stages: int) -> None:
        """So many of the planned stages fall away."""

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


class Several:
    """Several listeners as one; each hears everything, in this order."""

    def __init__(self, *listeners: Progress) -> None:
        self._listeners = listeners

    def plan(self, stages: int) -> None:
        """Hand it on."""
        for listener in self._listeners:
            listener.plan(stages)

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
