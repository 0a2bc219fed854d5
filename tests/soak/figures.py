"""What a drill found, in numbers, and the file the numbers are kept in."""

from __future__ import annotations

import json
import shlex
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from auber.run import provenance
from tests.small import cpu

_LOOK_EVERY = 0.2  # seconds


@dataclass(frozen=True)
class Figure:
    """One drill: how often it did its thing, how long that took, and the most memory all its processes held together."""

    name: str
    count: int
    seconds: float
    peak_mb: float
    details: dict[str, Any] = field(default_factory=dict)


def memory_of(process: psutil.Process) -> int:
    """The bytes a process and all below it hold in memory."""
    total = 0
    for each in (process, *process.children(recursive=True)):
        try:
            total += each.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


class Meter:
    """Measures a drill while it is entered."""

    def __init__(self) -> None:
        self.peak = 0
        self.seconds = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Meter:
        self._started = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.seconds = time.perf_counter() - self._started
        self._stop.set()
        self._thread.join()

    def figure(self, name: str, count: int, **details: Any) -> Figure:
        """The figure of the drill that was measured."""
        return Figure(name, count, round(self.seconds, 1), round(self.peak / 1e6), details)

    def _watch(self) -> None:
        process = psutil.Process()
        while True:
            self.peak = max(self.peak, memory_of(process))
            if self._stop.wait(_LOOK_EVERY):
                return


def describe_checkout() -> dict[str, Any]:
    """What makes the figures; to be asked before they are written, as the file is part of the checkout."""
    return provenance.describe(cpu())


def write_figures(
    path: Path, figures: list[Figure], facts: Mapping[str, Any], *, beside: bool
) -> None:
    """Keep figures with what made them, `beside` those of other drills that the file holds or in their place."""
    kept = (
        json.loads(path.read_text(encoding="utf-8"))["drills"] if beside and path.exists() else {}
    )
    command = shlex.join(["python", "-m", "tests.soak", *sys.argv[1:]])
    content = {
        "versions": facts["versions"],
        "device": facts["device"],
        "drills": kept
        | {
            figure.name: {**asdict(figure), "command": command, "commit": facts["commit"]}
            for figure in figures
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
