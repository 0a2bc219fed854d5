"""How long work tells what it is doing: the library reports, the command line draws.

A run is a row of named stages; each counts its own steps. `Progress` is the whole interface, so that a bar, a log line or
a test can listen.
"""

from __future__ import annotations

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

    def end(self) -> None:
        """The current stage is over."""

    def say(self, text: str) -> None:
        """Something a person should read."""


class Silent:
    """Nobody listens."""

    def plan(self, stages: int) -> None:
        """Nothing."""

    def skip(self, stages: int) -> None:
        """Nothing."""

    def begin(self, stage: str, total: int) -> None:
        """Nothing."""

    def step(self, done: int, note: str = "") -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Nothing."""
