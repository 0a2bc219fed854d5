from __future__ import annotations

from itertools import combinations
from statistics import mean

import pytest

from auber.regret.measure import best_after, expected_regret


@pytest.mark.parametrize("rewards", range(1, 8))
def test_expected_regret_against_every_draw(rewards):
    scores = [0.5, 0.9, 0.3, 0.55, 0.8, 0.1]
    bests = [max(scores[0], *draw, 0.0) for draw in combinations(scores[1:], min(rewards, 6) - 1)]
    assert expected_regret(scores, rewards) == pytest.approx(0.9 - mean(bests), abs=1e-12)


def test_expected_regret_of_many_masks_is_a_regret():
    scores = [index / 65534 for index in range(65535)]
    assert expected_regret(scores, 300) == pytest.approx(1 / 300, rel=0.01)


def test_best_after():
    curve = [[1, 0.5], [4, 0.7]]
    assert [best_after(curve, count) for count in (1, 3, 4, 100)] == [0.5, 0.5, 0.7, 0.7]
