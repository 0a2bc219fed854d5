"""What a search tells the user, and the best plan of a given size."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from auber.models.plan import PruningPlan
from auber.run.decisions import Decisions, best_by_size, best_plan
from auber.run.ledger import Ledger
from auber.search.methods import LayerChoice
from tests.small import Messages, small_config


def decisions(metric="explained", **changes):
    request = SimpleNamespace(config=small_config(**changes), reward_metric=metric)
    messages = Messages()
    return Decisions(request, None, messages), messages.said


@pytest.mark.parametrize(
    ("metric", "score", "number"),
    [("explained", 0.0, 1), ("explained", 0.01, 0), ("r_squared", 0.0, 1), ("pearson", -0.2, 0)],
)
def test_a_model_that_explains_nothing_is_reported_once(metric, score, number):
    made, said = decisions(metric)
    made._say_nothing_learned(score, 40)
    made._say_nothing_learned(score, 40)
    assert len(said) == number
    assert all(
        text.startswith("the unpruned model explains nothing of the 40 reward") for text in said
    )


def test_heads_can_be_shared_by_a_player_that_scores_no_mask(tmp_path):
    made, _ = decisions("accuracy", search__heads=2)
    made._request.method = SimpleNamespace(choose_layer=lambda search: LayerChoice((), 0))
    made._run = SimpleNamespace(ledger=Ledger(tmp_path / "scores.jsonl", writable=False))
    scorer = SimpleNamespace(
        layer=1, present=(0, 1, 2), key="k", score_many=lambda masks: [0.5] * len(masks)
    )
    found = made.search(None, scorer, 10, ())
    assert found["sizes"] == [{"removed": [], "score": 0.5, "gain": 0.0}]
    assert found["search"]["rewards_computed"] == 1


def test_the_best_mask_of_each_size():
    scores = {(): 0.5, (1,): 0.4, (0,): 0.45, (0, 1): 0.2, (2,): 0.45}
    assert best_by_size(scores) == {0: ((), 0.5), 1: ((0,), 0.45), 2: ((0, 1), 0.2)}


@pytest.mark.parametrize("seed", range(5))
def test_no_other_distribution_of_the_heads_gains_more(seed):
    random = np.random.default_rng(seed)
    masks = [(), (0,), (0, 1), (0, 1, 2)]
    layers = {
        layer: {len(mask): (mask, float(random.normal())) for mask in masks} for layer in (0, 2, 5)
    }
    for wanted in range(10):
        plan, gain = best_plan(wanted, layers)
        ways = [sizes for sizes in itertools.product(range(4), repeat=3) if sum(sizes) == wanted]
        gains = [
            sum(of[size][1] for of, size in zip(layers.values(), sizes, strict=True))
            for sizes in ways
        ]
        assert plan.num_heads == wanted
        assert gain == pytest.approx(max(gains))
        best = zip(layers, ways[int(np.argmax(gains))], strict=True)
        assert plan == PruningPlan({layer: masks[size] for layer, size in best})


def test_sizes_that_do_not_add_up_to_the_number():
    layers = {0: {0: ((), 0.5), 3: ((0, 1, 2), 0.4)}, 1: {0: ((), 0.5), 5: (range(5), 0.3)}}
    found = [best_plan(wanted, layers)[0].num_heads for wanted in (1, 2, 4, 6, 9)]
    assert found == [0, 3, 3, 5, 8], "of two equally near the smaller"
