"""The growth of a reward's cost with rows, layers and heads.

Each series changes one size and holds the others. Heads are counted at one hidden size, which is
cut into more and narrower heads, because a wider model multiplies larger matrices whatever its
heads. Layer 0, the most expensive one, is measured.
"""

from __future__ import annotations

from dataclasses import replace

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

    def measure(axis: str, number: int, variant: Size, row_count: int) -> GrowthPoint:
        progress.begin(f"growth: {number} {axis}", limits.repeats)
        subject = make_subject(variant, shape, row_count, config, hardware)
        _, record = time_scorer(subject, ("heads", 0), limits)
        flops = Work.of(subject.encoder, subject.rows.lengths).count_flops(0)
        progress.end()
        floor = 1000 * flops / flops_per_second
        return GrowthPoint(size=number, milliseconds=record.milliseconds, floor_milliseconds=floor)

    return tuple(
        GrowthSeries(
            axis=axis,
            points=tuple(measure(axis, *each) for each in sorted(some, key=lambda each: each[0])),
        )
        for axis, some in variants.items()
    )
