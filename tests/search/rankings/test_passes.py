from __future__ import annotations

import pytest
import torch

from auber.models.surgery import remove_heads
from auber.search.rankings.common import frozen_copy, padded_batches, present_heads, row_losses
from tests.kinds import TOKEN_KINDS, num_labels, random_kind_rows
from tests.search.made import random_rows, ranking_inputs
from tests.tiny_models import tiny_model


@pytest.mark.parametrize("num_labels", [1, 2, 3])
def test_the_mean_of_row_losses_is_the_models_own(num_labels):
    model = tiny_model(num_labels=num_labels)
    rows = random_rows(model)
    for inputs, targets in padded_batches(ranking_inputs(model, rows=rows), 30):
        with torch.inference_mode():
            expected = float(model(**inputs, **targets).loss)
            losses = row_losses(model, "sequence", inputs, targets)
        assert float(losses.mean()) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_a_rows_loss_does_not_depend_on_its_batch(kind):
    """transformers' own loss of spans does: there padding competes with the tokens."""
    model, rows = tiny_model(kind=kind, num_labels=num_labels(kind)), random_kind_rows(kind)
    alone, together = (
        torch.cat(
            [
                row_losses(model, kind, *batch)
                for batch in padded_batches(ranking_inputs(model, rows=rows), tokens)
            ]
        )
        for tokens in (1, 10_000)
    )
    assert len(alone) == len(rows)
    torch.testing.assert_close(alone, together, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_a_row_alone_has_the_models_own_loss(kind):
    model, rows = tiny_model(kind=kind, num_labels=num_labels(kind)), random_kind_rows(kind)
    compared = 0
    for inputs, targets in padded_batches(ranking_inputs(model, rows=rows), 1):
        loss = row_losses(model, kind, inputs, targets)
        if (
            max(int(target.max()) for target in targets.values()) < 0
        ):  # nothing to answer: transformers says NaN, or takes token 0
            assert loss.item() == 0
            continue
        assert loss.item() == pytest.approx(model(**inputs, **targets).loss.item(), abs=1e-5)
        compared += 1
    assert compared > 8


def test_every_row_comes_once():
    model = tiny_model()
    rows = random_rows(model, 20)
    seen = []
    for inputs, targets in padded_batches(ranking_inputs(model, rows=rows), 30):
        assert len(targets["labels"]) == len(inputs["input_ids"])
        seen += [
            ids[mask.bool()].tolist()
            for ids, mask in zip(inputs["input_ids"], inputs["attention_mask"], strict=True)
        ]
    assert sorted(seen) == sorted(rows.input_ids)


def test_the_copy_is_apart():
    model = tiny_model().train()
    copied = frozen_copy(ranking_inputs(model))
    assert not copied.training
    assert not any(parameter.requires_grad for parameter in copied.parameters())
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_empty_layers_are_left_out():
    model = tiny_model()
    remove_heads(model, {0: [2], 1: [0, 1, 2, 3]}, allow_empty_layers=True)
    assert present_heads(ranking_inputs(model).encoder) == {0: (0, 1, 3), 2: (0, 1, 2, 3)}
