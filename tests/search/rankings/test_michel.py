from __future__ import annotations

import pytest
import torch

from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.surgery import gated, remove
from auber.search.rankings import michel
from auber.search.rankings.michel import choose_plan, head_importance
from tests.kinds import TOKEN_KINDS, num_labels, random_kind_rows
from tests.search.made import random_rows, ranking_inputs, silence_heads
from tests.tiny_models import MODEL_TYPES, tiny_model


def slow_importance(model, rows):
    """Central differences of each row's own loss by one gate at a time, in float64."""
    model, step = model.double(), 1e-5
    encoder, importance = encoder_of(model), []
    for layer in range(encoder.num_layers):
        heads = len(encoder.present(layer))
        sums = torch.zeros(heads, dtype=torch.float64)
        for row in range(len(rows)):
            inputs = {name: torch.tensor([values]) for name, values in rows[row].items()}
            targets = [inputs[name] for name in inputs if name in ("labels", "start_positions")]
            if targets[0].is_floating_point():
                inputs["labels"] = targets[0].double()
            elif targets[0].max() < 0:
                continue  # without an answer there is no loss
            for head in range(heads):
                losses = []
                for moved in (1 + step, 1 - step):
                    gate = torch.ones(heads, dtype=torch.float64)
                    gate[head] = moved
                    with gated(model, {layer: gate}), torch.inference_mode():
                        losses.append(float(model(**inputs).loss))
                sums[head] += abs(losses[0] - losses[1]) / (2 * step)
        importance.append((sums / sums.norm()).tolist())
    return importance


@pytest.mark.parametrize(
    ("model_type", "labels"),
    [("bert", 2), ("bert", 1), ("mpnet", 3), ("distilbert", 2), ("electra", 2),
     ("bert", "tokens"), ("bert", "spans")],
)  # fmt: skip
def test_against_finite_differences_row_by_row(model_type, labels, monkeypatch):
    monkeypatch.setattr(michel, "_TOKENS_PER_BATCH", 24)  # several batches, some rows padded
    if labels in TOKEN_KINDS:
        model = tiny_model(model_type, kind=labels, num_labels=num_labels(labels))
        rows = random_kind_rows(labels, 8)
    else:
        model = tiny_model(model_type, num_labels=labels)
        rows = random_rows(model, 6)
    remove(model, {0: [1], 2: [0, 3]})
    inputs = ranking_inputs(model, rows=rows)
    found = head_importance(inputs)
    expected = slow_importance(model, inputs.rows)
    for layer, heads in found.items():
        assert tuple(heads) == inputs.encoder.present(layer)
        assert list(heads.values()) == pytest.approx(expected[layer], rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_heads_that_nothing_reads_go_first(model_type):
    model = tiny_model(model_type)
    inputs = ranking_inputs(model, 3)
    dead = {0: (1, 2), 2: (3,)}
    silence_heads(model, dead)
    choice = choose_plan(inputs)
    assert choice.plan == PruningPlan(dead)
    assert choice.details["importance"]["0"]["1"] == 0.0
    silence_heads(model, {1: range(4)})
    assert set(head_importance(inputs)[1].values()) == {0.0}
