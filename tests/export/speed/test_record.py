from __future__ import annotations

import pytest

from auber.export.speed.record import Pair, Times


def test_times_of_a_batch():
    times = Times.of([0.001, 0.002, 0.003, 0.004, 0.005], batch=6)
    assert (times.low_quartile, times.milliseconds, times.high_quartile) == pytest.approx((2, 3, 4))
    assert times.rows_per_second == pytest.approx(2000)


def test_a_pair_says_which_is_which():
    pair = Pair.of(("torch", "cpu", "float32"), 2, 16, unpruned=[0.04] * 6, pruned=[0.02] * 6)
    assert pair.unpruned.milliseconds == pytest.approx(40)
    assert pair.ratio.median == pytest.approx(2)
    assert pair.verdict == "2.00 times as fast (95 % interval 2.00 to 2.00)"
    assert (pair.batch, pair.length, pair.rounds) == (2, 16, 6)
