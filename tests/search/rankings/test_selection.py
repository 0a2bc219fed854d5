"""From scores to plans: a number of heads, and target sizes, against slow, obvious searches."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from auber.config import Size
from auber.errors import ConfigError, ModelError, PlanError
from auber.models.costs import UnitCosts
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.surgery import remove
from auber.search.rankings.selection import (
    check_size,
    remove_lowest,
    select_units,
)
from tests.search.made import ranking_inputs
from tests.small import small_config
from tests.tiny_models import HEADS, LAYERS, MODEL_TYPES, NEURONS, tiny_model

layers = st.dictionaries(
    st.integers(0, 5),
    st.dictionaries(st.integers(0, 7), st.integers(-3, 3).map(float), max_size=5),
    max_size=4,
)


def heads_of(scores):
    return {("heads", layer): of_layer for layer, of_layer in scores.items()}


@given(layers, st.data())
def test_the_lowest_go_and_one_stays(scores, data):
    most = sum(max(0, len(heads) - 1) for heads in scores.values())
    count = data.draw(st.integers(0, most))
    plan = remove_lowest(heads_of(scores), count)
    assert plan.num_heads == count
    for layer, heads in scores.items():
        gone = [(heads[head], layer, head) for head in plan.heads.get(layer, ())]
        for other, others in scores.items():
            left = [
                (score, other, head)
                for head, score in others.items()
                if head not in plan.heads.get(other, ())
            ]
            assert left or not others
            # Everything that goes is lower than everything that stays, except in another layer
            # that could not spare a head.
            if other == layer or len(left) > 1:
                assert all(one < another for one in gone for another in left)


def test_of_equal_scores_the_first_goes():
    scores = heads_of({1: {0: 1.0, 3: 1.0}, 0: {2: 1.0, 1: 1.0}})
    assert remove_lowest(scores, 1) == PruningPlan({0: [1]})


@pytest.mark.parametrize(
    ("score", "count", "error", "message"),
    [
        (0.0, 2, PlanError, "plan: the number of heads to remove must be from 0 to 1 .one head "
         "stays in each layer., found 2$"),
        (math.nan, 0, ModelError, "layer 1, head 2: its score must be a finite number, found nan"),
        (math.inf, 0, ModelError, "layer 1, head 2: its score must be a finite number, found inf"),
    ],
)  # fmt: skip
def test_scores_and_numbers_that_cannot_be(score, count, error, message):
    scores = heads_of({0: {0: 1.0}, 1: {2: score, 3: 0.0}, 2: {}})
    with pytest.raises(error, match=f"^{message}"):
        select_units(ranking_inputs(tiny_model(), count), scores)


# --- target sizes --------------------------------------------------------------------------------


def random_scores(model, seed=0, units="both"):
    """Return random scores of all present units."""
    draw, encoder = torch.Generator().manual_seed(seed), encoder_of(model)

    def of(present):
        return dict(zip(present, torch.rand(len(present), generator=draw).tolist(), strict=True))

    layers = range(encoder.num_layers)
    heads = {("heads", i): of(encoder.present(i)) for i in layers if units != "neurons"}
    neurons = {("neurons", i): of(encoder.present_neurons(i)) for i in layers if units != "heads"}
    return {**heads, **neurons}


def select(model, scores, **size):
    settings = {f"size__{key}": value for key, value in size.items()}
    return select_units(ranking_inputs(model, None, config=small_config(**settings)), scores)


def share_left(model, plan):
    length = min(small_config().max_length, encoder_of(model).num_positions)
    return plan.cost(model, length).multiply_adds


@pytest.mark.parametrize("units", ["heads", "neurons", "both"])
@pytest.mark.parametrize("keep", [1.0, 0.8, 0.7, 0.5, 0.3])
@pytest.mark.parametrize("model_type", ["bert", "modernbert"])
def test_the_share_is_reached_with_the_fewest_lowest_units(model_type, keep, units):
    model = tiny_model(model_type)
    scores = random_scores(model, units=units)
    if share_left(model, everything(units)) > keep:
        return
    plan = select(model, scores, keep=keep, units=units, multiple=1)
    found = share_left(model, plan)
    costs = UnitCosts.of(encoder_of(model), 28)
    assert found <= keep + 1e-9
    # Putting back the highest unit that went would exceed the share.
    removed = {("heads", layer): gone for layer, gone in plan.heads.items()}
    removed |= {("neurons", layer): gone for layer, gone in plan.neurons.items()}
    cost = {"heads": costs.head, "neurons": costs.neuron}
    gone = [(scores[site][unit], cost[site[0]]) for site, of in removed.items() for unit in of]
    if gone:
        last = max(gone)
        assert found + last[1] / costs.total > keep
        for site, of_layer in scores.items():
            left = set(of_layer) - set(removed.get(site, ()))
            assert left, site
            if len(left) > 1:  # otherwise it may be low, but is the last
                assert min(of_layer[unit] for unit in left) >= last[0]
    remove(model, plan)


def everything(units):
    layers = range(LAYERS)
    return PruningPlan(
        {layer: range(1, HEADS) for layer in layers} if units != "neurons" else None,
        {layer: range(1, NEURONS) for layer in layers} if units != "heads" else None,
    )


@pytest.mark.parametrize("multiple", [1, 5, 8])
@given(seed=st.integers(0, 1000), keep=st.floats(0.4, 1.0))
def test_widths_are_multiples(multiple, seed, keep):
    model = MODEL
    plan = select(model, random_scores(model, seed), keep=keep, multiple=multiple)
    for layer in range(LAYERS):
        left = NEURONS - len(plan.neurons.get(layer, ()))
        assert left % multiple == 0 or left == NEURONS
        assert left >= multiple
    assert share_left(model, plan) <= keep + 1e-9


MODEL = tiny_model()


@pytest.mark.parametrize("keep", [1.0, 0.9, 0.8, 0.71])
def test_even_widths(keep):
    model = tiny_model()
    scores = random_scores(model, units="neurons")
    plan = select(model, scores, keep=keep, even=True, multiple=4)
    (width,) = {NEURONS - len(plan.neurons.get(layer, ())) for layer in range(LAYERS)}
    assert width % 4 == 0
    assert share_left(model, plan) <= keep + 1e-9
    wider = PruningPlan(neurons={layer: range(NEURONS - width - 4) for layer in range(LAYERS)})
    assert width == NEURONS or share_left(model, wider) > keep
    for layer, gone in plan.neurons.items():
        of_layer = scores["neurons", layer]
        assert sorted(of_layer, key=of_layer.get)[: len(gone)] == sorted(gone, key=of_layer.get)
    remove(model, plan)
    assert model.config.intermediate_size == width


def test_a_pruned_model_is_pruned_further():
    model = tiny_model()
    remove(model, PruningPlan({0: [1, 2]}, {1: range(3, 20)}))
    plan = select(model, random_scores(model), keep=0.5)
    assert not {*plan.heads.get(0, ())} & {1, 2}
    assert not {*plan.neurons.get(1, ())} & {*range(3, 20)}
    assert 0.45 < share_left(model, plan) <= 0.5 + 1e-9


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (
            {"keep": 0.1},
            r"--keep must be at least 0.2215 \(one head and 8 neurons stay in each layer\), found "
            r"0.1; raise it$",
        ),
        (
            {"keep": 0.05, "multiple": 1},
            r"--keep must be at least 0.1715 \(one head and one neuron stay in each layer\), found",
        ),
        (
            {"keep": 0.3, "units": "heads"},
            r"--keep must be at least 0.5072 \(one head and all neurons stay in each layer\), "
            r"found 0.3; raise it, or add --units both$",
        ),
        (
            {"keep": 0.3, "units": "neurons"},
            r"\(all heads and 8 neurons stay in each layer\), found 0.3; raise it, or add --units",
        ),
        (
            {"keep": 0.3, "even": True},
            r"\(all heads and 8 neurons stay in each layer\), found 0.3; ",
        ),
    ],
)
def test_sizes_that_cannot_be(size, message):
    with pytest.raises(ConfigError, match=message):
        check_size(encoder_of(tiny_model()), Size(**size), 28)


def test_the_smallest_sizes_can_be():
    model = tiny_model()
    plan = select(model, random_scores(model), keep=0.2215)
    assert share_left(model, plan) == pytest.approx(0.2215, abs=2e-3)
    assert {len(of) for of in plan.heads.values()} == {HEADS - 1}
    assert {len(of) for of in plan.neurons.values()} == {NEURONS - 8}


def test_pruned_models_that_do_not_fit_the_size():
    model = tiny_model()
    remove(model, PruningPlan(neurons={0: range(24)}))
    message = "^--keep must be at most the share that the model still has, 0.9.*, found 0.95; lower"
    with pytest.raises(ConfigError, match=message):
        check_size(encoder_of(model), Size(keep=0.95), 28)
    message = "^--even needs an encoder whose layers have the same number of neurons, found diff"
    with pytest.raises(ConfigError, match=message):
        check_size(encoder_of(model), Size(keep=0.5, even=True), 28)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_family(model_type):
    model = tiny_model(model_type)
    plan = select(model, random_scores(model), keep=0.5)
    assert 0.44 < share_left(model, plan) <= 0.5 + 1e-9
    remove(model, plan)
