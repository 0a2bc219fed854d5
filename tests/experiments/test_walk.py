"""Which heads the models still have when a layer is decided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from auber.encoders import encoder_of
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
