from __future__ import annotations

import random

import pytest
from scipy.stats import binom

from auber.training.ratio import FEWEST_ROUNDS, Ratio, brief, ratio_of, verdict


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
    outside = int(
        found.low
    )  # so many values, at either end, are at the interval's end or beyond it
    assert found.high == count + 1 - outside
    assert 2 * binom.cdf(outside - 1, count, 0.5) <= 0.05
    assert 2 * binom.cdf(outside, count, 0.5) > 0.05


def test_equal_models_are_called_faster_or_slower_in_at_most_one_of_twenty():
    draw = random.Random(0)
    alarms = 0
    for _ in range(400):
        # times with a long tail, as machines have them
        pairs = [(1 + draw.expovariate(5), 1 + draw.expovariate(5)) for _ in range(12)]
        found = ratio_of([first for first, _ in pairs], [second for _, second in pairs])
        alarms += "no faster" not in verdict(found)
    assert 0 < alarms <= 0.05 * 400 + 10  # two standard deviations above


@pytest.mark.parametrize(
    ("ratio", "words", "short"),
    [
        (
            Ratio(1.2, 1.1, 1.3),
            "1.20 times as fast (95 % interval 1.10 to 1.30)",
            "1.20 (1.10 to 1.30)",
        ),
        (
            Ratio(0.8, 0.7, 0.9),
            "slower: 0.80 times as fast (95 % interval 0.70 to 0.90)",
            "0.80 (0.70 to 0.90) slower",
        ),
        (
            Ratio(1.02, 1.0, 1.3),
            "no faster (1.02 times as fast, 95 % interval 1.00 to 1.30)",
            "1.02 (1.00 to 1.30) no faster",
        ),
    ],
)
def test_words(ratio, words, short):
    assert verdict(ratio) == words
    assert brief(ratio) == short


def test_too_few_pairs():
    with pytest.raises(ValueError, match="^an interval needs 6 pairs, found 5$"):
        ratio_of([1.0] * 5, [1.0] * 5)
