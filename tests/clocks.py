"""A clock that tests move by hand, so that they do not depend on the load of the machine."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


class Clock:
    """Replace the module `time`."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def takes(self, seconds: float, result: Any = None) -> Callable[[], Any]:
        """Return a function that takes this long and returns the result."""

        def call() -> Any:
            self.now += seconds
            return result

        return call


def set_clock(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> Clock:
    """Replace `time` in a module by a clock."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock
