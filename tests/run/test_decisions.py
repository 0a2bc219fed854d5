"""What a search tells the user, and the best plan of a given size."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from auber.models.encoders import encoder_of
from auber.models.surgery import remove_heads
from auber.run.decisions import Decisions, best_by_size, best_plan, describe_fixed_layers
from tests.small import Messages, small_config
from tests.tiny_models import tiny_model


def decisions(metric="explained", **changes):
    request = SimpleNamespace(config=small_config(**changes), reward_metric=metric)
    messages = Messages()
    return Decisions(request, None, messages), messages.said


def test_layers_of_one_head_are_named():
    model = tiny_model("bert")
    encoder = encoder_of(model)
    assert describe_fixed_layers(encoder, [0, 1, 2]) is None
    remove_heads(model, {0: [1, 2, 3], 2: [0, 1, 2]})
    words = describe_fixed_layers(encoder, [2, 1])
    assert (
        words == "layer 2: skipped, because one head must stay in each layer and there is only one"
    )
    assert describe_fixed_layers(encoder, [2, 0]).startswith(
        "nothing to remove: one head must stay in each layer, and layers 0, 2 had only one; "
    )


@pytest.mark.parametrize(
    ("removed", "changes", "worth"),
    [
        (0, {}, "none is removed"),
        (1, {}, "the head removed could as well be others"),
        (3, {}, "the 3 heads removed could as well be others"),
        (None, {}, "the removed heads could as well be others"),
        (
            3,
            {"search__prior": "voita", "protocol": "crossfit"},
            "the plan that the search starts from decides",
        ),
    ],
)
def test_equal_rewards_are_reported(removed, changes, worth):
    made, said = decisions(**changes)
    for scores in ([], [0.5], [0.5, 0.5, 0.25]):
        made._say_equal_rewards(4, scores, removed)
    assert said == []
    made._say_equal_rewards(4, [0.5, 0.5], removed)
    assert said == [
        "layer 4: all 2 masks scored the same (0.5000), so the rewards do not distinguish heads; "
        + worth
    ]


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


@pytest.mark.parametrize(
    ("changes", "decides"),
    [
        ({"agent__choose": "rollout"}, "an untrained network decides"),
        ({"agent__choose": "best"}, "the best random mask decides"),
        ({"agent__choose": "rollout", "search__heads": 4}, "the best random mask decides"),
    ],
)
def test_an_agent_without_an_update_is_reported_once(changes, decides):
    made, said = decisions(**changes)
    for updates in (1, None, 0, 0):  # other methods have no agent
        made._say_no_update(4, updates)
    assert said == [
        "layer 4: the agent made no update, because its 6 games had fewer than 8 moves; "
        f"{decides}; raise agent.episodes, or lower agent.learning_starts (said once; the report "
        "names all such layers)"
    ]


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
        assert plan.num_removed == wanted
        assert gain == pytest.approx(max(gains))
        best = zip(layers, ways[int(np.argmax(gains))], strict=True)
        assert plan == {layer: masks[size] for layer, size in best if size}


def test_sizes_that_do_not_add_up_to_the_number():
    layers = {0: {0: ((), 0.5), 3: ((0, 1, 2), 0.4)}, 1: {0: ((), 0.5), 4: ((0, 1, 2, 3), 0.3)}}
    found = [best_plan(wanted, layers)[0].num_removed for wanted in (1, 2, 5, 6, 9)]
    assert found == [0, 3, 4, 7, 7]
