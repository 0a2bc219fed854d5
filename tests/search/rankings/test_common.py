from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from auber.data.targets import Vectors
from auber.models.surgery import gated, remove
from auber.search.rankings.common import (
    padded_batches,
    present_units,
    row_losses,
    sum_gate_gradients,
)
from auber.training.evaluation import predict
from tests.kinds import TOKEN_KINDS, num_labels, random_kind_rows
from tests.search.made import ranking_inputs
from tests.tiny_models import tiny_model

# --- passes over the rows ------------------------------------------------------------------------


@pytest.mark.parametrize("num_labels", [1, 2, 3])
def test_the_mean_of_row_losses_is_the_models_own(num_labels):
    model = tiny_model(num_labels=num_labels)
    for inputs, targets in padded_batches(ranking_inputs(model), 30):
        with torch.inference_mode():
            expected = float(model(**inputs, **targets).loss)
            losses = row_losses(model, "sequence", inputs, targets)
        assert float(losses.mean()) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_the_loss_of_a_row_does_not_depend_on_its_batch(kind):
    """transformers' own loss of spans does: padding competes with the tokens."""
    model, rows = tiny_model(kind=kind, num_labels=num_labels(kind)), random_kind_rows(kind)
    inputs = ranking_inputs(model, rows=rows)
    alone, together = (
        torch.cat([row_losses(model, kind, *batch) for batch in padded_batches(inputs, tokens)])
        for tokens in (1, 10_000)
    )
    assert len(alone) == len(rows)
    for (batch, targets), loss in zip(padded_batches(inputs, 1), alone.tolist(), strict=True):
        if max(int(target.max()) for target in targets.values()) < 0:
            assert loss == 0  # without an answer; transformers gives NaN, or uses token 0
        else:
            assert loss == pytest.approx(model(**batch, **targets).loss.item(), abs=1e-5)
    torch.testing.assert_close(alone, together, atol=1e-5, rtol=1e-5)


def test_layers_without_heads_are_left_out():
    model = tiny_model()
    remove(model, {0: [2], 1: [0, 1, 2, 3]}, allow_empty_layers=True)
    assert present_units(ranking_inputs(model)) == {
        ("heads", 0): (0, 1, 3),
        ("heads", 2): (0, 1, 2, 3),
    }


def test_the_importance_for_vectors_is_the_square_of_their_derivatives():
    """Its labels are the model's own vectors, where the loss has no gradient."""
    model = tiny_model(kind="embeddings", num_hidden_layers=1)
    rows = random_kind_rows("embeddings", 150)
    rows.targets = Vectors(predict(model, rows))
    inputs = replace(ranking_inputs(model, rows=rows), is_answered=True)
    found = sum_gate_gradients(inputs, torch.square, "importance")["heads", 0]
    expected = torch.zeros(4, dtype=torch.float64)
    gates = torch.ones(4, requires_grad=True)
    for batch, _ in padded_batches(inputs, 1):
        with gated(model, {0: gates}):
            hidden = model(**batch).last_hidden_state
            vector = torch.nn.functional.normalize(hidden.mean(1), dim=-1)[0]
            for each in vector:
                (slope,) = torch.autograd.grad(each, gates, retain_graph=True)
                expected += slope.double() ** 2
    assert (found / expected).numpy() == pytest.approx([1] * 4, abs=0.25)
    whole = sum_gate_gradients(replace(inputs, is_answered=False), torch.square, "importance")
    assert (whole["heads", 0] < 1e-6 * found).all()
