"""Time calls side by side and compare them: the median ratio of paired times, with an interval.

In each round every call is timed once, so that whatever slows the machine slows all calls alike.
The 95 % interval of the median is that of the sign test: it makes no assumption about the
distribution, and single outliers do not move it as they would move a t interval.

Importing this module does not import torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from auber.errors import ConfigError

if TYPE_CHECKING:
    import torch

Call = Callable[[], object]
Timer = Callable[[Call], float]  # from a call to its seconds

FEWEST_ROUNDS = 6  # 2 / 2^6 is the first level below 5 %
_WARM_UP_ROUNDS = 3


@dataclass(frozen=True)
class Limits:
    """How often calls are timed."""

    repeats: int = 30
    seconds: float = 60.0  # no further round begins after this time, once there are FEWEST_ROUNDS

    def __post_init__(self) -> None:
        if self.repeats < FEWEST_ROUNDS:
            raise ConfigError(
                f"--repeats must be at least {FEWEST_ROUNDS}, the fewest an interval can be made "
                f"of, found {self.repeats}"
            )
        if not self.seconds > 0:
            raise ConfigError(f"--seconds must be above 0, found {self.seconds:g}")


@dataclass(frozen=True)
class Ratio:
    """Seconds of the unpruned model over those of the pruned one; above 1 the pruned is faster."""

    median: float
    low: float  # of the 95 % interval of the median
    high: float


def make_timer(device: torch.device) -> Timer:
    """Return the clock of a device; for a GPU its own, because the host only submits the work."""
    return {"cuda": _cuda_seconds, "mps": _mps_seconds}.get(device.type, _host_seconds)


def side_by_side(
    calls: Sequence[Call],
    timer: Timer,
    limits: Limits,
    report: Callable[[int], None] = lambda done: None,
) -> list[list[float]]:
    """Return the seconds of each call in every round after the warm-up.

    The order of the calls is reversed in every second round. `report` gets the rounds done.
    """
    for _ in range(_WARM_UP_ROUNDS):
        for call in calls:
            timer(call)
    seconds: list[list[float]] = [[] for _ in calls]
    started = time.perf_counter()
    for done in range(limits.repeats):
        if done >= FEWEST_ROUNDS and time.perf_counter() - started >= limits.seconds:
            break
        places = range(len(calls)) if done % 2 == 0 else reversed(range(len(calls)))
        for place in places:
            seconds[place].append(timer(calls[place]))
        report(done + 1)
    return seconds


def ratio_of(unpruned: Sequence[float], pruned: Sequence[float]) -> Ratio:
    """Return the ratio of at least `FEWEST_ROUNDS` pairs of times."""
    from scipy.stats import binom

    ratios = sorted(first / second for first, second in zip(unpruned, pruned, strict=True))
    if len(ratios) < FEWEST_ROUNDS:
        raise ValueError(f"an interval needs {FEWEST_ROUNDS} pairs, found {len(ratios)}")
    place = int(binom.ppf(0.025, len(ratios), 0.5)) - 1  # as far inside as 95 % allow
    return Ratio(median(ratios), ratios[place], ratios[-1 - place])


def brief(ratio: Ratio) -> str:
    """Format the ratio for a table's cell."""
    return f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f}){_insignificance(ratio)}"


def verdict(ratio: Ratio) -> str:
    """Format the ratio in words."""
    interval = f"95 % interval {ratio.low:.2f} to {ratio.high:.2f}"
    return f"{ratio.median:.2f} times as fast ({interval}){_insignificance(ratio)}"


def _insignificance(ratio: Ratio) -> str:
    return ": not significant" if ratio.low <= 1 <= ratio.high else ""


def _host_seconds(call: Call) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _mps_seconds(call: Call) -> float:
    import torch

    torch.mps.synchronize()
    started = time.perf_counter()
    call()
    torch.mps.synchronize()
    return time.perf_counter() - started


def _cuda_seconds(call: Call) -> float:
    import torch

    cuda: Any = torch.cuda  # its events have no types in some versions of torch
    begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / 1000  # from milliseconds
