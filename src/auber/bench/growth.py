"""How the cost of a reward grows with the rows, the layers and the heads.

Each series changes one size and holds the others. A model's first and last layer cost a reward of layer 0 less than those
between, so with few layers the arithmetic itself grows a little faster than their number, by equal steps. Heads are counted at one width: the same hidden size is cut into more
and narrower heads, since a wider model multiplies larger matrices whatever its heads. Layer 0 is measured, the dearest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import linear_regression

from auber.bench.arithmetic import Work
from auber.bench.catalogue import LEAST_ROWS, Limits, RowShape, Size
from auber.bench.record import GrowthPoint, GrowthSeries
from auber.bench.rewards import time_scorer
from auber.bench.subjects import Subject, make_sized_subject
from auber.config import Config
from auber.system.progress import Progress
from auber.training.devices import Hardware


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
    half = max(1, size.num_layers // 2)
    row_counts = sorted(
        {max(LEAST_ROWS, number) for number in (rows // 4, rows // 2, rows, 2 * rows)}
    )
    layer_counts = sorted(
        {max(2, half), size.num_layers, size.num_layers + half, 2 * size.num_layers}
    )
    series = {
        "rows": {number: (size, number) for number in row_counts},
        "layers": {number: (replace(size, num_layers=number), rows) for number in layer_counts},
        "heads": {number: (replace(size, num_heads=number), rows) for number in _head_counts(size)},
    }
    progress.plan(sum(map(len, series.values())))
    found = []
    for axis, variants in series.items():
        points = []
        for number, (variant, row_count) in variants.items():
            progress.begin(f"growth: {number} {axis}", limits.repeats)
            subject = make_sized_subject(variant, shape, row_count, config, hardware)
            points.append(_measure(subject, number, flops_per_second, limits, progress))
            progress.end()
        found.append(_series(axis, points))
    return tuple(found)


def fitted_exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """The power of the size that fits the times best: 1 is linear growth."""
    return linear_regression(
        [math.log(size) for size in sizes], [math.log(time) for time in times]
    ).slope


def _series(axis: str, points: Sequence[GrowthPoint]) -> GrowthSeries:
    sizes = [point.size for point in points]
    return GrowthSeries(
        axis,
        fitted_exponent(sizes, [point.milliseconds for point in points]),
        fitted_exponent(sizes, [point.floor_milliseconds for point in points]),
        tuple(points),
    )


def _head_counts(size: Size) -> list[int]:
    """Numbers of heads around the size's own that its width can be cut into."""
    near = (size.num_heads // 2, size.num_heads, 2 * size.num_heads, 4 * size.num_heads)
    return [number for number in near if number and size.hidden_size % number == 0]


def _measure(
    subject: Subject, number: int, flops_per_second: float, limits: Limits, progress: Progress
) -> GrowthPoint:
    _, times = time_scorer(subject, 0, limits, progress)
    floor = Work.of(subject.encoder, subject.rows.lengths).reward_flops(0) / flops_per_second
    return GrowthPoint(number, 1000 * times.reward, times.prepare, 1000 * floor)
