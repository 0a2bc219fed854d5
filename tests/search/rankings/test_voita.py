from __future__ import annotations

import json

import pytest

from auber.models.plan import PruningPlan
from auber.search.rankings.gates import Trial
from auber.search.rankings.voita import choose_plan, search_penalty
from tests.search.made import ranking_inputs, self_labelled, silence_heads
from tests.small import small_config
from tests.tiny_models import MODEL_TYPES, tiny_model


def fake_training(closed_at):
    """Closes as many gates as thresholds lie below the penalty."""
    tried = []

    def train(penalty):
        tried.append(penalty)
        return Trial(penalty, sum(penalty > one for one in closed_at), 0.0, 0.0, ())

    return train, tried


@pytest.mark.parametrize("scale", [1e-5, 1e-2, 10.0])
def test_the_penalty_is_found_by_bisection(scale):
    train, tried = fake_training([scale * 1.3**rank for rank in range(20)])
    found = search_penalty(train, 7, 20, 20)
    assert found.closed == 7
    assert tried[0] == 0.01
    assert len(tried) < 15
    assert found.penalty == tried[-1]  # it ends when enough have closed


def test_the_search_ends_after_its_trials_with_the_nearest():
    train, tried = fake_training([1.0] * 20)  # all or nothing: 7 is never reached
    found = search_penalty(train, 7, 20, 6)
    assert len(tried) == 6
    assert found.closed == 0


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_heads_that_nothing_reads_close(model_type):
    model = tiny_model(model_type, num_labels=1)
    dead = {0: (1, 2), 2: (3,)}
    silence_heads(model, dead)
    config = small_config(
        voita__epochs=6, voita__batch_size=4, voita__learning_rate=0.2, voita__trials=3
    )
    choice = choose_plan(ranking_inputs(model, 3, self_labelled(model), config))
    assert choice.plan == PruningPlan(dead)
    json.dumps(choice.details)


def test_the_trace_is_kept():
    model = tiny_model()
    config = small_config(voita__epochs=1, voita__trials=2)
    choice = choose_plan(ranking_inputs(model, 4, config=config))
    details = choice.details
    assert choice.plan.num_heads == 4
    assert 1 <= len(details["trials"]) <= 2
    assert details["trials"][0].keys() == {"penalty", "closed", "expected_open", "loss"}
    assert details["penalty"] in [trial["penalty"] for trial in details["trials"]]
    assert details["gate_steps"] == len(details["trials"])
    assert [len(heads) for heads in details["gates"].values()] == [4, 4, 4]
