from __future__ import annotations

import pytest
import torch

from auber.models.encoders import encoder_of
from auber.models.surgery import gated_heads, remove_heads
from auber.search.rankings import michel
from auber.search.rankings.common import padded_batches
from auber.search.rankings.michel import choose_plan, head_importance
from tests.kinds import TOKEN_KINDS, num_labels, random_kind_rows
from tests.search.made import random_rows, ranking_inputs
from tests.tiny_models import MODEL_TYPES, tiny_model


def row_loss(model, inputs, label):
    """The loss as transformers itself computes it, for one row."""
    with torch.inference_mode():
        return float(model(**inputs, labels=label).loss)


def slow_importance(model, rows):
    """Central differences of each row's own loss by one gate at a time, in float64."""
    model = model.double()
    encoder, step = encoder_of(model), 1e-5
    importance = []
    for layer in range(encoder.num_layers):
        heads = len(encoder.present(layer))
        sums = torch.zeros(heads, dtype=torch.float64)
        for row in range(len(rows)):
            inputs = {
                name: torch.tensor([values])
                for name, values in rows[row].items()
                if name != "labels"
            }
            label = rows.labels[row : row + 1]
            label = label.double() if label.is_floating_point() else label
            for head in range(heads):
                losses = []
                for moved in (1 + step, 1 - step):
                    gate = torch.ones(heads, dtype=torch.float64)
                    gate[head] = moved
                    with gated_heads(model, {layer: gate}):
                        losses.append(row_loss(model, inputs, label))
                sums[head] += abs(losses[0] - losses[1]) / (2 * step)
        mean = sums / len(rows)
        importance.append((mean / mean.square().sum().sqrt()).tolist())
    return importance


@pytest.mark.parametrize(
    ("model_type", "labels"),
    [("bert", 2), ("bert", 1), ("mpnet", 3), ("distilbert", 2), ("electra", 2)],
)
def test_against_finite_differences_row_by_row(model_type, labels, monkeypatch):
    monkeypatch.setattr(michel, "_TOKENS_PER_BATCH", 24)  # several batches, some rows padded
    model = tiny_model(model_type, num_labels=labels)
    remove_heads(model, {0: [1], 2: [0, 3]})
    inputs = ranking_inputs(model, rows=random_rows(model, 6))
    found = head_importance(inputs)
    expected = slow_importance(model, inputs.rows)
    for layer, heads in found.items():
        assert tuple(heads) == inputs.encoder.present(layer)
        assert list(heads.values()) == pytest.approx(expected[layer], rel=1e-3, abs=1e-4)


def test_rows_of_opposite_sign_do_not_cancel():
    """One gate for a whole batch would give the absolute value of a sum."""
    model = tiny_model()
    inputs = ranking_inputs(model)
    gate = torch.ones(4, requires_grad=True)
    losses = []
    with gated_heads(model, {1: gate}):
        for batch, targets in padded_batches(inputs, 1000):
            losses.append(model(**batch, **targets).loss)
        (derivative,) = torch.autograd.grad(sum(losses), gate)
    cancelled = (derivative.abs() / derivative.norm()).tolist()
    found = list(head_importance(inputs)[1].values())
    assert max(abs(one - other) for one, other in zip(found, cancelled, strict=True)) > 0.05


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_heads_that_nothing_reads_go_first(model_type):
    model = tiny_model(model_type)
    inputs = ranking_inputs(model, 3)
    dead = {0: (1, 2), 2: (3,)}
    with torch.no_grad():
        for layer, heads in dead.items():
            for head in heads:
                inputs.encoder.parts(layer).output.weight[:, head * 8 : head * 8 + 8] = 0
    choice = choose_plan(inputs)
    assert choice.plan == dead
    assert choice.details["importance"]["0"]["1"] == 0.0


def test_a_layer_nothing_reads_keeps_its_zeros():
    model = tiny_model()
    inputs = ranking_inputs(model)
    with torch.no_grad():
        inputs.encoder.parts(1).output.weight.zero_()
    assert set(head_importance(inputs)[1].values()) == {0.0}


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_importance_for_every_task_type(kind):
    """Compare with the model's own loss of one row at a time, without padding."""
    model = tiny_model(kind=kind, num_labels=num_labels(kind))
    rows = random_kind_rows(kind)
    sums = {layer: torch.zeros(4) for layer in range(3)}
    for row in range(len(rows)):
        features = {name: torch.tensor([value]) for name, value in rows[row].items()}
        answers = [features[name] for name in features if name in ("labels", "start_positions")]
        if max(int(answer.max()) for answer in answers) < 0:
            continue  # without an answer there is no loss
        gates = {layer: torch.ones(4, requires_grad=True) for layer in sums}
        with gated_heads(model, gates):
            derivatives = torch.autograd.grad(model(**features).loss, list(gates.values()))
        for layer, derivative in zip(gates, derivatives, strict=True):
            sums[layer] += derivative.abs()
    found = head_importance(ranking_inputs(model, rows=rows))
    for layer, expected in sums.items():
        normalised = (expected / expected.norm()).tolist()
        assert list(found[layer].values()) == pytest.approx(normalised, rel=1e-3, abs=1e-4)
