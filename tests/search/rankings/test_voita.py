from __future__ import annotations

import json

import pytest
import torch

from auber.models.costs import UnitCosts
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.search.rankings.gates import GateTraining, Trial
from auber.search.rankings.voita import choose_plan, search_penalty
from tests.search.made import ranking_inputs, self_labelled, silence_heads
from tests.small import small_config
from tests.tiny_models import HEADS, LAYERS, MODEL_TYPES, tiny_model


def fake_training(closed_at):
    """Closes as many gates as thresholds lie below the penalty."""
    tried = []

    def train(penalty):
        tried.append(penalty)
        return Trial(penalty, sum(penalty > one for one in closed_at), 0.0, 0.0, ())

    return train, tried


def closed(trial):
    return trial.closed


@pytest.mark.parametrize("scale", [1e-5, 1e-2, 10.0])
def test_the_penalty_is_found_by_bisection(scale):
    train, tried = fake_training([scale * 1.3**rank for rank in range(20)])
    found = search_penalty(train, closed, 7, 0.4, 20)
    assert found.closed == 7
    assert tried[0] == 0.01
    assert len(tried) < 15
    assert found.penalty == tried[-1]  # it ends when enough have closed


def test_the_search_ends_after_its_trials_with_the_nearest():
    train, tried = fake_training([1.0] * 20)  # all or nothing: 7 is never reached
    found = search_penalty(train, closed, 7, 0.4, 6)
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


@pytest.mark.parametrize("model_type", ["bert", "modernbert"])
def test_heads_and_blocks_that_nothing_reads_close(model_type):
    model = tiny_model(model_type, num_labels=1)
    dead = {0: (1, 2)}
    silence_heads(model, dead)
    parts = encoder_of(model).parts(2)
    with torch.no_grad():
        parts.contract.weight[:, 12:24] = 0  # four blocks of three neurons, of the smallest norm
    costs = UnitCosts.of(encoder_of(model), 24)
    keep = 1 - (2 * costs.head + 12 * costs.neuron) / costs.total
    config = small_config(
        voita__epochs=6, voita__batch_size=4, voita__learning_rate=0.2, voita__trials=3,
        size__keep=keep, size__multiple=1,
    )  # fmt: skip
    choice = choose_plan(ranking_inputs(model, None, self_labelled(model), config))
    assert choice.plan == PruningPlan(dead, {2: range(12, 24)})
    assert choice.details["gates"].keys() == {"0", "1", "2"}


def test_the_penalty_is_weighted_by_multiply_adds():
    model = tiny_model()
    inputs = ranking_inputs(model, None, config=small_config(size__keep=0.5))
    training = GateTraining(inputs)
    costs = UnitCosts.of(encoder_of(model), 24)
    assert training.num_gates == LAYERS * (HEADS + 16)
    assert float(training.counts.sum()) == pytest.approx(1.0)
    assert float(training.counts[0]) == pytest.approx(costs.head / costs.total)
    assert float(training.counts[-1]) == pytest.approx(3 * costs.neuron / costs.total)
    locations = [-9.0] * LAYERS * HEADS + [9.0] * LAYERS * 16
    trial = Trial(0.1, LAYERS * HEADS, 0.0, 0.0, tuple(locations))
    assert training.measure_closed(trial) == pytest.approx(
        LAYERS * HEADS * costs.head / costs.total
    )
