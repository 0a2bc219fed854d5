"""The rankings by gradients of gates, `michel` and `fisher`, against finite differences."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from auber.models.costs import UnitCosts
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.surgery import gated, remove
from auber.search.rankings import common
from auber.search.rankings.fisher import unit_information
from auber.search.rankings.michel import unit_importance
from auber.search.registry import get_method
from tests.kinds import TOKEN_KINDS, num_labels, random_kind_rows
from tests.search.made import random_rows, ranking_inputs, self_labelled, silence_heads
from tests.small import small_config
from tests.tiny_models import HEADS, LAYERS, MODEL_TYPES, NEURONS, tiny_model

BOTH = small_config(size__keep=0.5)


def slow_derivatives(model, rows, layer, unit, of="loss"):
    """Central differences of each row's own loss by one gate at a time, in float64: (rows, units).

    A row without an answer has no loss, and no derivative. `of` may be "logits".
    """
    model, step = model.double(), 1e-5
    parts, head_dim = encoder_of(model).parts(layer), encoder_of(model).head_dim
    count = parts.output.in_features // head_dim if unit == "head" else parts.contract.in_features
    found = torch.zeros(len(rows), count, dtype=torch.float64)
    for row in range(len(rows)):
        inputs = {name: torch.tensor([values]) for name, values in rows[row].items()}
        targets = [inputs[name] for name in inputs if name in ("labels", "start_positions")]
        if targets[0].is_floating_point():
            inputs["labels"] = targets[0].double()
        elif targets[0].max() < 0:
            continue
        for place in range(count):
            losses = []
            for moved in (1 + step, 1 - step):
                gate = torch.ones(count, dtype=torch.float64)
                gate[place] = moved
                gates = ({layer: gate}, {}) if unit == "head" else ({}, {layer: gate})
                with gated(model, *gates), torch.inference_mode():
                    losses.append(float(getattr(model(**inputs), of)))
            found[row, place] = (losses[0] - losses[1]) / (2 * step)
    return found


def test_answers_that_are_numbers_against_finite_differences():
    """The squared error to the model's own answers has no gradient there, but a curvature."""
    model = tiny_model("bert", num_labels=1)
    rows = self_labelled(model, 6)
    inputs = ranking_inputs(model, rows=rows, config=BOTH, num_removed=None)
    assert max(max(of.values()) for of in unit_information(inputs).values()) < 1e-9
    found = unit_information(replace(inputs, is_answered=True))
    for (kind, layer), scores in found.items():
        unit = kind.removesuffix("s")
        expected = slow_derivatives(model, rows, layer, unit, "logits").square().mean(0).tolist()
        assert list(scores.values()) == pytest.approx(expected, rel=2e-3, abs=1e-6)


@pytest.mark.parametrize(
    ("model_type", "labels"),
    [("bert", 2), ("bert", 1), ("mpnet", 3), ("distilbert", 2), ("electra", 2),
     ("bert", "tokens"), ("bert", "spans")],
)  # fmt: skip
def test_heads_against_finite_differences_row_by_row(model_type, labels, monkeypatch):
    monkeypatch.setattr(common, "_TOKENS_PER_BATCH", 24)  # several batches, some rows padded
    if labels in TOKEN_KINDS:
        model = tiny_model(model_type, kind=labels, num_labels=num_labels(labels))
        rows = random_kind_rows(labels, 8)
    else:
        model = tiny_model(model_type, num_labels=labels)
        rows = random_rows(model, 6)
    remove(model, {0: [1], 2: [0, 3]})
    inputs = ranking_inputs(model, rows=rows)
    found, information = unit_importance(inputs), unit_information(inputs)
    for (kind, layer), heads in found.items():
        assert kind == "heads"
        derivatives = slow_derivatives(model, rows, layer, "head")
        assert tuple(heads) == inputs.encoder.present(layer)
        sums = derivatives.abs().sum(0)
        expected = (sums / sums.norm()).tolist()
        assert list(heads.values()) == pytest.approx(expected, rel=1e-3, abs=1e-4)
        expected = derivatives.square().mean(0).tolist()
        assert list(information[kind, layer].values()) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("model_type", ["bert", "modernbert"])
def test_both_kinds_of_unit_against_finite_differences(model_type):
    model = tiny_model(model_type)
    rows = random_rows(model, 3)
    remove(model, PruningPlan({1: [2]}, {1: range(5, 40)}))
    inputs = ranking_inputs(model, None, rows, BOTH)
    importance, information = unit_importance(inputs), unit_information(inputs)
    layer = 1
    assert tuple(importance["neurons", layer]) == inputs.encoder.present_neurons(layer)
    heads = slow_derivatives(model, rows, layer, "head")
    neurons = slow_derivatives(model, rows, layer, "neuron")
    sums = torch.cat([heads, neurons], dim=1).abs().sum(0)
    found = [*importance["heads", layer].values(), *importance["neurons", layer].values()]
    # ModernBERT rotates in float32, which blurs differences.
    tolerance = {"rel": 0.02, "abs": 5e-3} if model_type == "modernbert" else {"rel": 1e-3}
    assert found == pytest.approx((sums / sums.norm()).tolist(), **tolerance)
    if model_type == "bert":
        found = list(information["neurons", layer].values())
        assert found == pytest.approx(neurons.square().mean(0).tolist(), rel=1e-3, abs=1e-9)


def test_scores_are_divided_by_the_cost_of_a_unit_for_a_target_size():
    model = tiny_model()
    inputs = ranking_inputs(model, None, config=small_config(size__keep=0.7, size__multiple=1))
    scores = unit_information(inputs)
    costs = UnitCosts.of(inputs.encoder, 24)
    cost = {"heads": costs.head, "neurons": costs.neuron}
    ranked = sorted(
        (score / cost[kind], kind, layer, number)
        for (kind, layer), of_layer in scores.items()
        for number, score in of_layer.items()
    )
    left = {("heads", layer): HEADS for layer in range(LAYERS)}
    left |= {("neurons", layer): NEURONS for layer in range(LAYERS)}
    remaining, expected = costs.total, PruningPlan()
    for _, kind, layer, number in ranked:
        if remaining <= 0.7 * costs.total:
            break
        if left[kind, layer] > 1:
            left[kind, layer] -= 1
            expected |= PruningPlan(**{kind: {layer: [number]}})
            remaining -= cost[kind]
    assert get_method("fisher").choose_plan(inputs).plan == expected


@pytest.mark.parametrize("model_type", MODEL_TYPES)
@pytest.mark.parametrize("method", ["michel", "fisher"])
def test_heads_that_nothing_reads_go_first(model_type, method):
    model = tiny_model(model_type)
    inputs = ranking_inputs(model, 3)
    dead = {0: (1, 2), 2: (3,)}
    silence_heads(model, dead)
    choice = get_method(method).choose_plan(inputs)
    assert choice.plan == PruningPlan(dead)
    assert choice.details["importance"]["0"]["1"] == 0.0
    silence_heads(model, {1: range(4)})
    assert set(unit_importance(inputs)["heads", 1].values()) == {0.0}


@pytest.mark.parametrize("model_type", ["bert", "modernbert"])
@pytest.mark.parametrize("method", ["michel", "fisher"])
def test_neurons_that_nothing_reads_go_first(model_type, method):
    model = tiny_model(model_type)
    dead = {0: range(16), 2: range(20, 28)}
    with torch.no_grad():
        for layer, neurons in dead.items():
            encoder_of(model).parts(layer).contract.weight[:, list(neurons)] = 0
    costs = UnitCosts.of(encoder_of(model), 24)
    keep = 1 - 24 * costs.neuron / costs.total
    inputs = ranking_inputs(model, None, config=small_config(size__keep=keep))
    assert get_method(method).choose_plan(inputs).plan == PruningPlan(neurons=dead)
