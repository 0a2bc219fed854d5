from __future__ import annotations

import pytest
import torch

from auber.methods.passes import frozen_copy, padded_batches, present_heads, row_losses
from auber.surgery import remove_heads
from tests.methods.works import random_rows, ranking_work
from tests.models import tiny_model


@pytest.mark.parametrize("num_labels", [1, 2, 3])
def test_the_mean_of_row_losses_is_the_models_own(num_labels):
    model = tiny_model(num_labels=num_labels)
    rows = random_rows(model)
    for inputs, labels in padded_batches(rows, 30, torch.device("cpu")):
        with torch.inference_mode():
            output = model(**inputs, labels=labels)
        assert float(row_losses(output.logits, labels).mean()) == pytest.approx(float(output.loss), abs=1e-6)


def test_every_row_comes_once():
    model = tiny_model()
    rows = random_rows(model, 20)
    seen = []
    for inputs, labels in padded_batches(rows, 30, torch.device("cpu")):
        assert len(labels) == len(inputs["input_ids"])
        seen += [
            ids[mask.bool()].tolist() for ids, mask in zip(inputs["input_ids"], inputs["attention_mask"], strict=True)
        ]
    assert sorted(seen) == sorted(rows.input_ids)


def test_the_copy_is_apart():
    model = tiny_model().train()
    copied = frozen_copy(ranking_work(model))
    assert not copied.training
    assert not any(parameter.requires_grad for parameter in copied.parameters())
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_empty_layers_are_left_out():
    model = tiny_model()
    remove_heads(model, {0: [2], 1: [0, 1, 2, 3]}, allow_empty_layers=True)
    assert present_heads(ranking_work(model).encoder) == {0: (0, 1, 3), 2: (0, 1, 2, 3)}
