"""How the cost of a reward grows with the rows, the layers and the heads.

Each series changes one size and holds the others. Heads are counted at one width: the same hidden size is cut into more
and narrower heads, since a wider model multiplies larger matrices whatever its heads. Layer 0 is measured, the dearest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import linear_regression

from auber.bench.arithmetic import Work
from auber.bench.catalogue import Limits, RowShape, Size
from auber.bench.record import GrowthPoint, GrowthSeries
from auber.bench.rewards import time_scorer
from auber.bench.subjects import Subject, make_sized_subject
from auber.config import Config
from auber.devices import Hardware
from auber.progress import Progress


def measure_growth(
    size: Size,
    shape: RowShape,
    count: int | None,
    config: Config,
    hardware: Hardware,
    flops_per_second: float,
    limits: Limits,
    progress: Progress,
) -> tuple[GrowthSeries, ...]:
    """The three series, about four points each."""
    rows = count or shape.count
    quarter = max(1, size.num_layers // 4)
    series = {
        "rows": [rows // 4, rows // 2, rows, 2 * rows],
        "layers": sorted({min(size.num_layers, quarter * part) for part in (1, 2, 3)} | {size.num_layers}),
        "heads": _head_counts(size),
    }
    progress.plan(sum(map(len, series.values())))
    found = []
    for axis, sizes in series.items():
        points = []
        for number in sizes:
            progress.begin(f"growth: {number} {axis}", limits.repeats)
            if axis == "rows":
                subject = make_sized_subject(size, shape, number, config, hardware)
            else:
                subject = make_sized_subject(size, shape, rows, config, hardware, **{f"num_{axis}": number})
            points.append(_measure(subject, number, flops_per_second, limits, progress))
            progress.end()
        found.append(GrowthSeries(axis, fitted_exponent(points), tuple(points)))
    return tuple(found)


def fitted_exponent(points: Sequence[GrowthPoint]) -> float:
    """The power of the size that fits the times best: 1 is linear growth."""
    sizes, times = [math.log(point.size) for point in points], [math.log(point.milliseconds) for point in points]
    return linear_regression(sizes, times).slope


def _head_counts(size: Size) -> list[int]:
    """Numbers of heads around the size's own that its width can be cut into."""
    near = (size.num_heads // 4, size.num_heads // 2, size.num_heads, 2 * size.num_heads)
    return [number for number in near if number and size.hidden_size % number == 0]


def _measure(
    subject: Subject, number: int, flops_per_second: float, limits: Limits, progress: Progress
) -> GrowthPoint:
    _, prepare_seconds, reward_seconds = time_scorer(subject, 0, limits, progress)
    floor = Work.of(subject.encoder, subject.rows.lengths).reward_flops(0) / flops_per_second
    return GrowthPoint(number, 1000 * reward_seconds, prepare_seconds, 1000 * floor)
