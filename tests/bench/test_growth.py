from __future__ import annotations

import pytest

from auber.bench.catalogue import ROWS, SIZES, Limits
from auber.bench.growth import fitted_exponent, measure_growth
from auber.system.progress import Progress
from tests.small import cpu, small_config


def test_each_series_changes_one_size():
    config = small_config(max_length=128)
    growth = measure_growth(
        SIZES["tiny"], ROWS["cola"], 32, config, cpu(), 1e10, Limits(2, 10), Progress()
    )
    sizes = {series.axis: [point.size for point in series.points] for series in growth}
    assert sizes == {"rows": [8, 16, 32, 64], "layers": [2, 3, 4], "heads": [2, 4, 8, 16]}
    floors = {
        series.axis: [point.floor_milliseconds for point in series.points] for series in growth
    }
    assert len(set(floors["heads"])) == 1, "the same width has the same arithmetic"
    steps = [
        upper - lower for lower, upper in zip(floors["layers"], floors["layers"][1:], strict=False)
    ]
    assert steps[0] == pytest.approx(steps[1]), "each further layer adds the same arithmetic"
    for series in growth:
        assert all(point.milliseconds > 0 and point.prepare_seconds > 0 for point in series.points)
        expected = fitted_exponent(
            sizes[series.axis], [point.milliseconds for point in series.points]
        )
        assert series.exponent == pytest.approx(expected)


def test_the_exponent_is_the_power():
    assert fitted_exponent([1, 2, 4], [3, 12, 48]) == pytest.approx(2)
    assert fitted_exponent([5, 50], [7, 7]) == pytest.approx(0)
