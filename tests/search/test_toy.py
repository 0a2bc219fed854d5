from __future__ import annotations

from itertools import combinations

import pytest

from auber.search.toy import ToyLayer


def test_the_optimum_beats_every_mask_and_leaves_a_head() -> None:
    layer = ToyLayer(7, seed=2, bias=0.01)
    best, score = layer.optimum()
    masks = [mask for size in range(7) for mask in combinations(range(7), size)]
    assert len(masks) == 2**7 - 1
    assert score == layer.score(best) == max(layer.score(mask) for mask in masks)
    assert len(best) < 7


def test_a_score_in_steps_lies_on_them() -> None:
    layer = ToyLayer(6, seed=0, steps=277)
    for mask in [(), (1,), (2, 4), (0, 1, 5)]:
        assert layer.score(mask) * 277 == pytest.approx(round(layer.score(mask) * 277))
