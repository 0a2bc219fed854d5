from __future__ import annotations

import pytest

from auber.models.encoders import encoder_of
from auber.models.surgery import remove_heads
from auber.run.notices import equal_rewards, layers_that_stay, nothing_learned, nothing_updated
from tests.small import small_config
from tests.tiny_models import tiny_model


def test_layers_of_one_head_are_named():
    model = tiny_model("bert")
    encoder = encoder_of(model)
    assert layers_that_stay(encoder, [0, 1, 2]) is None
    remove_heads(model, {0: [1, 2, 3], 2: [0, 1, 2]})
    assert layers_that_stay(encoder, [2, 1]) == (
        "layer 2: one head stays in each layer, and there are no more: passed over"
    )
    assert layers_that_stay(encoder, [2, 0]) == (
        "nothing to remove: one head stays in each layer, and layers 0, 2 had no more to begin with; the model is tuned and "
        "evaluated as it is"
    )


@pytest.mark.parametrize(
    ("removed", "worth"),
    [
        (0, "none is removed"),
        (1, "the head removed could as well be others"),
        (3, "the 3 heads removed could as well be others"),
    ],
)
def test_equal_rewards_speak_for_no_head(removed, worth):
    assert equal_rewards(4, [0.5, 0.5], removed) == (
        f"layer 4: all 2 masks scored the same (0.5000), so the rewards tell no head from another; {worth}"
    )


@pytest.mark.parametrize("scores", [[], [0.5], [0.5, 0.5, 0.25]])
def test_there_is_nothing_to_say_of_scores_that_differ_or_stand_alone(scores):
    assert equal_rewards(0, scores, 1) is None


def test_a_smooth_reward_of_nothing_is_said():
    assert nothing_learned("explained", 0.0, 40) == (
        "the unpruned model explains nothing of the 40 reward rows: what was learned does not hold for them, and no head is worth "
        "anything to the reward; more rows, another first.learning_rate or more first.epochs may change that"
    )
    assert nothing_learned("explained", 0.01, 40) is None
    assert nothing_learned("r_squared", 0.0, 40) is not None
    assert nothing_learned("pearson", -0.2, 40) is None, "there a head may still be worth something"


def test_where_a_plan_was_given_equal_rewards_leave_it():
    assert equal_rewards(4, [0.5, 0.5], 3, has_prior=True) == (
        "layer 4: all 2 masks scored the same (0.5000), so the rewards tell no head from another; the plan that the search began from "
        "decides"
    )


@pytest.mark.parametrize(
    ("changes", "worth"),
    [
        ({"agent__choose": "rollout"}, "plays"),
        ({"agent__choose": "best"}, "and chance came by"),
        ({"agent__choose": "rollout", "search__heads": 4}, "and chance came by"),
    ],
)
def test_an_agent_that_made_no_update_is_named(changes, worth):
    config = small_config(**changes)
    assert nothing_updated(4, config, 0) == (
        f"layer 4: the agent made no update, as its 6 games had fewer than 8 moves; what an untaught network {worth} decides; raise "
        "agent.episodes, or lower agent.learning_starts (said once; the report names all such layers)"
    )
    assert nothing_updated(4, config, 1) is None
    assert nothing_updated(4, config, None) is None, "other methods have no agent"


@pytest.mark.parametrize("asked", [{"agent__episodes": 0}, {"agent__updates_per_episode": 0}])
def test_an_agent_that_was_told_not_to_learn_is_not_named(asked):
    assert nothing_updated(4, small_config(**asked), 0) is None
