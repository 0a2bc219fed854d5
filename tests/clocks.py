"""A clock for tests of what takes time: it moves when it is told to, so that no load on the machine can."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


class Clock:
    """Stands in for the module `time` in another one."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def takes(self, seconds: float, result: Any = None) -> Callable[[], Any]:
        """A call that lasts so long and returns the result."""

        def call() -> Any:
            self.now += seconds
            return result

        return call


def set_clock(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> Clock:
    """Gives a module the clock for its `time`."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock
