from __future__ import annotations

import pytest
import torch
from scipy.stats import binom

from auber.training import timing
from auber.training.timing import (
    FEWEST_ROUNDS,
    Limits,
    Ratio,
    brief,
    make_timer,
    ratio_of,
    side_by_side,
    verdict,
)


def test_the_median_of_the_pairs_and_not_the_ratio_of_medians():
    # the machine slows down threefold for half of the pairs: each pair still shows 2
    unpruned, pruned = [2.0, 2.0, 2.0, 6.0, 6.0, 6.0], [1.0, 1.0, 1.0, 3.0, 3.0, 3.0]
    assert ratio_of(unpruned, pruned) == Ratio(2.0, 2.0, 2.0)


def test_an_outlier_moves_nothing():
    ratios = [1.1 + 0.001 * place for place in range(30)]
    hiccup = [*ratios[:29], 40.0]
    assert ratio_of(hiccup, [1.0] * 30) == ratio_of(ratios, [1.0] * 30)


@pytest.mark.parametrize("count", [FEWEST_ROUNDS, 7, 8, 9, 12, 30, 101])
def test_the_interval_is_the_narrowest_that_covers_95_in_100(count):
    values = [float(number) for number in range(1, count + 1)]
    found = ratio_of(values, [1.0] * count)
    outside = int(found.low)  # values beyond or at the interval, at either end
    assert found.high == count + 1 - outside
    assert 2 * binom.cdf(outside - 1, count, 0.5) <= 0.05
    assert 2 * binom.cdf(outside, count, 0.5) > 0.05


CPU = torch.device("cpu")


class Clock:
    """Stand in for the module `time`, so that tests do not depend on the load of the machine."""

    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now

    def takes(self, seconds):
        """Return a function that takes this long."""

        def call():
            self.now += seconds

        return call


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(timing, "time", found)
    return found


def test_calls_take_turns():
    made = []
    done = []
    calls = [lambda: made.append("a"), lambda: made.append("b")]
    seconds = side_by_side(calls, make_timer(CPU), Limits(repeats=8), done.append)
    assert "".join(made) == "ababab" + "abba" * 4  # the warm-up, then the rounds
    assert [len(each) for each in seconds] == [8, 8]
    assert done == list(range(1, 9))


@pytest.mark.parametrize(
    ("low", "high", "is_significant"), [(1.1, 1.3, True), (0.7, 0.9, True), (1.0, 1.3, False)]
)
def test_a_ratio_is_always_given_with_its_interval(low, high, is_significant):
    for text in (brief(Ratio(1.2, low, high)), verdict(Ratio(1.2, low, high))):
        assert text.startswith("1.20 ")
        assert f"{low:.2f} to {high:.2f})" in text
        assert ("not significant" in text) != is_significant


def test_the_time_is_bounded_but_the_fewest_rounds_are_made(clock):
    def rounds(seconds):
        return len(
            side_by_side(
                [clock.takes(0.5)], make_timer(CPU), Limits(repeats=1000, seconds=seconds)
            )[0]
        )

    calls = [clock.takes(0.5), clock.takes(2.0)]
    assert side_by_side(calls, make_timer(CPU), Limits(repeats=6)) == [[0.5] * 6, [2.0] * 6]
    assert rounds(0.25) == 6
    assert rounds(10) == 20, "the warm-up not counted"


@pytest.mark.gpu
def test_a_gpu_is_timed_until_it_is_done():
    device = torch.device("cuda")
    small, large = (torch.randn(size, size, device=device) for size in (64, 8192))
    calls = [lambda: small @ small, lambda: large @ large]
    short, long = side_by_side(calls, make_timer(device), Limits(repeats=6))
    # 1.1e12 operations: no GPU does them in the time that handing them over takes
    assert min(long) > 5e-3
    assert min(short) < 1e-3


def test_a_device_that_is_handed_its_work_is_waited_for(clock, monkeypatch):
    monkeypatch.setattr(torch.mps, "synchronize", clock.takes(2.0))
    assert make_timer(torch.device("mps"))(clock.takes(0.5)) == 2.5, "not for what came before"
