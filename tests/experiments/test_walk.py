"""Which heads the models still have when a layer is decided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from auber.encoders import encoder_of
from auber.plan import PruningPlan
from experiments import search
from experiments.search import VARIANTS, Walk
from tests.experiments.test_path import tiny_subject


@pytest.mark.parametrize("independent", [False, True])
def test_a_layer_is_decided_with_the_others_whole_or_as_decided(independent, tmp_path, monkeypatch):
    subject = tiny_subject(tmp_path)
    variant = replace(VARIANTS["crossed-calibrated-2-rewound"], independent=independent)
    walk = Walk(subject, variant, subject.start(), [subject.start(), subject.start()], np.arange(40) % 2)
    seen = []

    def play(layer, rows):
        seen.append([encoder_of(scout).removed.num_removed for scout in walk.scouts])
        return (0, 2), {(0, 2): 0.5}

    monkeypatch.setattr(walk, "_play", play)
    walk.decide_all()
    assert seen == ([[0, 0]] * 3 if independent else [[0, 0], [2, 2], [4, 4]])
    assert encoder_of(walk.model).removed == {0: (0, 2), 1: (0, 2), 2: (0, 2)}
    assert walk.scores == {layer: {(0, 2): 0.5} for layer in range(3)}


@pytest.mark.parametrize(("corrections", "kept"), [((), (0, 2)), ((1,), (0, 1, 2)), ((0, 3), (2, 3))])
def test_a_plan_is_corrected_in_each_layer_beside_the_others(corrections, kept, tmp_path, monkeypatch):
    subject = tiny_subject(tmp_path)
    scouts = [subject.start(), subject.start()]
    variant = replace(VARIANTS["crossed-calibrated-rewound"], caution=0.5)
    given = PruningPlan(dict.fromkeys(range(3), (0, 2)))
    walk = Walk(subject, variant, subject.start(), scouts, np.arange(40) % 2, context=given)
    beside = []

    class Rows:
        def __init__(self, parts, layer, *_):
            beside.append([encoder_of(scout).removed for scout, _ in parts])

        def noise_of_a_head(self, heads):
            assert heads == (0, 1, 2, 3)
            return 0.001

        def score(self, _, removed):
            return 0.6 + 0.1 * len(removed)

    class Found:
        removed, rewards_computed = kept, 3

    def play_layer(game, *_, **__):
        game.reset()
        for head in corrections:
            game.step(head)
        assert game.removed == kept
        return Found

    monkeypatch.setattr(search, "MaskedRows", Rows)
    monkeypatch.setattr(search, "play_layer", play_layer)
    walk.decide_all()
    assert encoder_of(walk.model).removed == {0: kept, 1: kept, 2: kept}
    assert walk.context == PruningPlan(dict.fromkeys(range(3), kept))
    assert beside == [
        [PruningPlan({1: (0, 2), 2: (0, 2)})] * 2,
        [PruningPlan({0: kept, 2: (0, 2)})] * 2,
        [PruningPlan({0: kept, 1: kept})] * 2,
    ]
    assert all(not encoder_of(scout).removed for scout in walk.scouts)
    assert walk.bonuses == pytest.approx(dict.fromkeys(range(3), -0.05))
