"""What a measurement of speed found, as one typed value that goes to JSON; no path of the machine it was made on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from auber.training.timing import Ratio, ratio_of, verdict


@dataclass(frozen=True)
class Times:
    """The times of one model on one batch."""

    milliseconds: float  # the median
    low_quartile: float
    high_quartile: float
    rows_per_second: float  # at the median

    @classmethod
    def of(cls, seconds: Sequence[float], batch: int) -> Times:
        """Repeated times of a batch of so many rows."""
        low, middle, high = (1000 * value for value in quantiles(seconds, n=4, method="inclusive"))
        return cls(middle, low, high, batch / median(seconds))


@dataclass(frozen=True)
class Pair:
    """The unpruned and the pruned model side by side."""

    runtime: str
    device: str
    precision: str
    batch: int
    length: int
    rounds: int
    unpruned: Times
    pruned: Times
    ratio: Ratio
    verdict: str

    @classmethod
    def of(
        cls,
        way: tuple[str, str, str],
        batch: int,
        length: int,
        unpruned: Sequence[float],
        pruned: Sequence[float],
    ) -> Pair:
        """What a row of rounds shows; `way` is runtime, device and precision."""
        ratio = ratio_of(unpruned, pruned)
        times = Times.of(unpruned, batch), Times.of(pruned, batch)
        return cls(*way, batch, length, len(pruned), *times, ratio, verdict(ratio))


@dataclass(frozen=True)
class Amount:
    """Something counted in both models."""

    unpruned: int
    pruned: int


@dataclass(frozen=True)
class RunSpeed:
    """One run."""

    name: str
    family: str
    heads_removed: int
    heads: int
    plan: dict[str, list[int]]
    parameters: Amount
    multiply_adds: Amount  # of one row
    pairs: tuple[Pair, ...]


@dataclass(frozen=True)
class Speed:
    """One `auber speed`."""

    command: str
    runs: tuple[RunSpeed, ...]
    left_out: tuple[str, ...]  # what was not measured, and why
    seconds: float
    provenance: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """A plain JSON object, numbers to six digits."""
        return {"format": 1, "kind": "speed", **_plain(dataclasses.asdict(self))}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
