from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch

from auber.encoders import encoder_of
from auber.evaluation import predict
from auber.methods.passes import frozen_copy, present_heads
from auber.methods.voita import HardConcrete, Trial, choose_plan, search_penalty, train_gates
from auber.tasks.encoding import EncodedRows
from tests.methods.works import random_rows, ranking_work
from tests.models import MODEL_TYPES, tiny_model
from tests.small import small_config

LAWS = [HardConcrete(2 / 3, 0.1), HardConcrete(0.4, 0.3)]
LOCATIONS = torch.tensor([-6.0, -3.0, -1.6, 0.0, 0.7, 3.0])


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_expected_open_gates_against_sampling(law):
    draws = 200_000
    gates = law.draw(LOCATIONS, torch.rand(draws, len(LOCATIONS), generator=torch.Generator().manual_seed(0)))
    assert (gates.min(), gates.max()) == (0, 1)
    open_share = (gates > 0).double().mean(0)
    expected = law.open_probability(LOCATIONS.double())
    error = 5 * math.sqrt(0.25 / draws)
    assert open_share.tolist() == pytest.approx(expected.tolist(), abs=error)
    # the chance of being fully open follows by symmetry
    assert (gates == 1).double().mean(0).tolist() == pytest.approx(
        (1 - law.open_probability(-LOCATIONS.double())).tolist(), abs=error
    )


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_gradient_of_the_penalty(law):
    location = LOCATIONS.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda value: law.open_probability(value).sum(), location)
    (gradient,) = torch.autograd.grad(law.open_probability(location).sum(), location)
    chance = law.open_probability(location)
    assert gradient.tolist() == pytest.approx((chance * (1 - chance)).tolist())


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_gradient_of_a_draw(law):
    uniform = torch.tensor([0.3, 0.5, 0.6, 0.4, 0.5, 0.2], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda value: law.draw(value, uniform), LOCATIONS.double().requires_grad_())


def test_extreme_draws_are_finite():
    location = torch.zeros(2, requires_grad=True)
    gates = LAWS[0].draw(location, torch.tensor([0.0, 1 - 2**-24]))
    assert gates.tolist() == [0.0, 1.0]
    assert torch.autograd.grad(gates.sum(), location)[0].tolist() == [0.0, 0.0]


def test_values_lie_in_the_middle_of_the_draws():
    assert LAWS[0].value(torch.tensor([-3.0, 0.0, 3.0])).tolist() == pytest.approx([0.0, 0.5, 1.0])


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


def self_labelled(model, count=24):
    """Rows whose targets are what a one-output model gives: any working head that closes costs loss."""
    rows = random_rows(model, count)
    return EncodedRows(rows.input_ids, rows.token_types, predict(model, rows).squeeze(-1), rows.pad_token_id)


def kill(model, dead):
    """Make some heads of no effect."""
    with torch.no_grad():
        for layer, heads in dead.items():
            for head in heads:
                encoder_of(model).parts(layer).output.weight[:, head * 8 : head * 8 + 8] = 0


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_heads_that_nothing_reads_close(model_type):
    model = tiny_model(model_type, num_labels=1)
    dead = {0: (1, 2), 2: (3,)}
    kill(model, dead)
    config = small_config(voita__epochs=6, voita__batch_size=4, voita__learning_rate=0.2, voita__trials=3)
    choice = choose_plan(ranking_work(model, 3, self_labelled(model), config))
    assert choice.plan == dead
    json.dumps(choice.details)


def test_a_higher_penalty_closes_more():
    model = tiny_model(num_labels=1)
    config = small_config(voita__epochs=5, voita__batch_size=4, voita__learning_rate=0.2)
    work = ranking_work(model, rows=self_labelled(model), config=config)
    copied = frozen_copy(work)
    heads = present_heads(work.encoder)
    steps = []
    trials = [train_gates(work, copied, heads, penalty, steps.append) for penalty in (1e-6, 0.05, 10.0)]
    assert steps == [*range(1, 31)] * 3
    assert trials[0].closed < 2
    assert trials[-1].closed > 9
    assert trials[0].expected_open > trials[1].expected_open > trials[2].expected_open
    assert trials[0].loss < trials[-1].loss
    again = train_gates(work, copied, heads, 0.05, steps.append)
    assert again == trials[1]


def test_half_precision_is_close():
    model = tiny_model(num_labels=1)
    config = small_config(voita__epochs=1, voita__batch_size=8)
    work = ranking_work(model, rows=self_labelled(model), config=config)
    half = replace(work, hardware=replace(work.hardware, precision="bfloat16"))
    exact, rounded = (
        train_gates(one, frozen_copy(one), present_heads(one.encoder), 0.01, lambda step: None) for one in (work, half)
    )
    assert rounded.locations != exact.locations
    assert rounded.locations == pytest.approx(exact.locations, abs=0.05)


def test_the_trace_is_kept():
    model = tiny_model()
    config = small_config(voita__epochs=1, voita__trials=2)
    choice = choose_plan(ranking_work(model, 4, config=config))
    details = choice.details
    assert choice.plan.num_removed == 4
    assert 1 <= len(details["trials"]) <= 2
    assert details["trials"][0].keys() == {"penalty", "closed", "expected_open", "loss"}
    assert details["penalty"] in [trial["penalty"] for trial in details["trials"]]
    assert details["gate_steps"] == len(details["trials"])
    assert [len(heads) for heads in details["gates"].values()] == [4, 4, 4]
