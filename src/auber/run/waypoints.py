"""The sizes on the way to a small target size, and the share of the last tuning that each gets.

Units are removed in several steps, with a ranking before and a tuning after each; what that gained
is in docs/experiments.md. Every step leaves the same share of what there was. The k-th of n tunings
gets k parts of the epochs.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple


class Waypoint(NamedTuple):
    """A size on the way to a target, or the target; sizes are shares of the multiply-adds."""

    share: float
    epochs: int  # of the tuning that follows
    target: float
    steps: int  # to the target


def find_waypoints(now: float, target: float, step: float, epochs: int) -> tuple[Waypoint, ...]:
    """Return the sizes between `now` and `target`, and the target itself at the end.

    A step leaves at least the share `step` of what there was; 0 allows any step. A size whose
    tuning would have no epoch is left out.
    """
    count = 1
    if step and 0 < target < now:
        count = math.ceil(math.log(target / now) / math.log(step) - 1e-9)
    ends = [round(epochs * k * (k + 1) / (count * (count + 1))) for k in range(count + 1)]
    shares = [round(now * (target / now) ** (k / count), 4) for k in range(1, count)]
    parts = zip([*shares, target], pairwise(ends), strict=True)
    found = [(share, end - begin) for share, (begin, end) in parts]
    found = [pair for pair in found[:-1] if pair[1]] + found[-1:]
    return tuple(Waypoint(share, number, target, len(found)) for share, number in found)
