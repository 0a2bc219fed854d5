from __future__ import annotations

from collections import Counter

from auber.search.rankings.random import choose_plan
from tests.search.made import ranking_inputs
from tests.small import small_config
from tests.tiny_models import HEADS, LAYERS, tiny_model


def draw(model, draw=0, seed=0, num_removed=5):
    return choose_plan(
        ranking_inputs(model, num_removed, config=small_config(random__draw=draw, seed=seed))
    ).plan


def test_draws_and_seeds_differ():
    model = tiny_model()
    assert len({draw(model, number, seed) for number in range(4) for seed in range(4)}) > 12


def test_every_head_is_drawn_about_as_often():
    model = tiny_model()
    counts = Counter(
        (layer, head)
        for number in range(300)
        for layer, heads in draw(model, number).heads.items()
        for head in heads
    )
    expected = 300 * 5 / (LAYERS * HEADS)
    assert len(counts) == LAYERS * HEADS
    assert all(abs(count - expected) < 45 for count in counts.values())  # 5 standard deviations
