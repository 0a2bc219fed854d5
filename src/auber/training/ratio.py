"""How many times as fast: the median of the ratios of pairs, with an interval that no outlier moves.

The two of a pair were timed one after the other, so what slows the machine for longer than a pair slows both. The interval is
that of the sign test: it lies between two of the sorted ratios and covers the median with at least 95 % whatever their
distribution. A mean with a t interval would let one hiccup of the machine hide a difference that all other pairs show.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from auber.errors import ConfigError

FEWEST_ROUNDS = 6  # 2 / 2^6 is the first below 5 %


@dataclass(frozen=True)
class Limits:
    """How often a pair is timed."""

    repeats: int = 30
    seconds: float = 60.0  # after which no further round begins, once there are FEWEST_ROUNDS

    def __post_init__(self) -> None:
        if self.repeats < FEWEST_ROUNDS:
            raise ConfigError(
                f"--repeats must be at least {FEWEST_ROUNDS}, the fewest an interval can be made of, found {self.repeats}"
            )
        if not self.seconds > 0:
            raise ConfigError(f"--seconds must be above 0, found {self.seconds:g}")


_LEVEL = 0.05


@dataclass(frozen=True)
class Ratio:
    """Seconds of the unpruned model over seconds of the pruned one; above 1 the pruned one is faster."""

    median: float
    low: float  # of the 95 % interval of the median
    high: float


def ratio_of(unpruned: Sequence[float], pruned: Sequence[float]) -> Ratio:
    """The ratio that pairs of times show; `FEWEST_ROUNDS` at least."""
    ratios = sorted(first / second for first, second in zip(unpruned, pruned, strict=True))
    rank = _rank(len(ratios))
    return Ratio(median(ratios), ratios[rank], ratios[-1 - rank])


def brief(ratio: Ratio) -> str:
    """The ratio for a table's cell."""
    numbers = f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
    if ratio.low > 1:
        return numbers
    return f"{numbers} slower" if ratio.high < 1 else f"{numbers} no faster"


def verdict(ratio: Ratio) -> str:
    """The ratio in words."""
    interval = f"95 % interval {ratio.low:.2f} to {ratio.high:.2f}"
    if ratio.low > 1:
        return f"{ratio.median:.2f} times as fast ({interval})"
    if ratio.high < 1:
        return f"slower: {ratio.median:.2f} times as fast ({interval})"
    return f"no faster ({ratio.median:.2f} times as fast, {interval})"


def _rank(count: int) -> int:
    """The place, from either end, of the interval's ends among so many sorted values."""
    if count < FEWEST_ROUNDS:
        raise ValueError(f"an interval needs {FEWEST_ROUNDS} pairs, found {count}")
    below, rank = (
        0,
        0,
    )  # below: the assignments of values to the two sides of the median that leave out rank + 1 or more
    while 2 * (below + math.comb(count, rank)) <= _LEVEL * 2**count:
        below += math.comb(count, rank)
        rank += 1
    return rank - 1
