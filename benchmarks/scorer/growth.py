"""The growth of a reward's cost with rows, layers and heads.

Each series changes one size and holds the others. Heads are counted at one hidden size, which is
cut into more and narrower heads, because a wider model multiplies larger matrices whatever its
heads. Layer 0, the most expensive one, is measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import linear_regression

from auber.config import Config
from auber.system.progress import Progress
from auber.training.devices import Hardware
from benchmarks.scorer.floor import Work
from benchmarks.scorer.record import GrowthPoint, GrowthSeries
from benchmarks.scorer.rewards import Limits, time_scorer
from benchmarks.scorer.subjects import LEAST_ROWS, RowShape, Size, make_subject


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
    """Return the three series, about four points each."""
    rows, layers, heads = count or shape.count, size.num_layers, size.num_heads
    half = max(1, layers // 2)
    row_counts = {max(LEAST_ROWS, number) for number in (rows // 4, rows // 2, rows, 2 * rows)}
    layer_counts = {max(2, half), layers, layers + half, 2 * layers}
    head_counts = {
        number
        for number in (heads // 2, heads, 2 * heads, 4 * heads)
        if number and size.hidden_size % number == 0
    }
    variants = {
        "rows": [(number, size, number) for number in row_counts],
        "layers": [(number, replace(size, num_layers=number), rows) for number in layer_counts],
        "heads": [(number, replace(size, num_heads=number), rows) for number in head_counts],
    }
    found = []
    for axis, some in variants.items():
        points = []
        for number, variant, row_count in sorted(some, key=lambda each: each[0]):
            progress.begin(f"growth: {number} {axis}", limits.repeats)
            subject = make_subject(variant, shape, row_count, config, hardware)
            _, prepare_seconds, seconds = time_scorer(subject, "heads", 0, limits)
            flops = Work.of(subject.encoder, subject.rows.lengths).count_flops(0)
            points.append(
                GrowthPoint(
                    size=number,
                    milliseconds=1000 * seconds,
                    prepare_seconds=prepare_seconds,
                    floor_milliseconds=1000 * flops / flops_per_second,
                )
            )
            progress.end()
        sizes = [point.size for point in points]
        found.append(
            GrowthSeries(
                axis=axis,
                exponent=fit_exponent(sizes, [point.milliseconds for point in points]),
                floor_exponent=fit_exponent(sizes, [point.floor_milliseconds for point in points]),
                points=tuple(points),
            )
        )
    return tuple(found)


def fit_exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """Return the power of the size that fits the times best; 1 is linear growth."""
    logarithms = [[math.log(value) for value in values] for values in (sizes, times)]
    return linear_regression(*logarithms).slope
