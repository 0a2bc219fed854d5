"""Heads that are missing by chance while a model is tuned."""

from __future__ import annotations

import torch

from auber.encoders import encoder_of
from auber.surgery import gated_heads
from experiments.hardened import heads_missing
from tests.small import small_rows, small_start


def inputs(count):
    ids = small_rows(count).input_ids
    width = max(map(len, ids))
    padded = torch.tensor([list(row) + [0] * (width - len(row)) for row in ids])
    return {"input_ids": padded, "attention_mask": (padded != 0).long()}


def without_dropout(model):
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


def test_only_while_tuning_and_only_inside():
    model, rows = without_dropout(small_start()[0]), inputs(8)
    whole = model.eval()(**rows).logits
    with heads_missing(model, 0.9):
        assert torch.equal(model.eval()(**rows).logits, whole)
        assert not torch.allclose(model.train()(**rows).logits, whole, atol=1e-3)
    assert torch.allclose(model.train()(**rows).logits, whole, atol=1e-6)


def test_a_row_misses_whole_heads(monkeypatch):
    model, rows = without_dropout(small_start()[0]), inputs(6)
    encoder, drawn, rand = encoder_of(model), [], torch.rand

    def listen(*shape, **more):
        found = rand(*shape, **more)
        drawn.append(found)
        return found

    monkeypatch.setattr(torch, "rand", listen)
    with heads_missing(model, 0.8):
        found = model.train()(**rows).logits
    assert len(drawn) == 2 * encoder.num_layers
    gates = {layer: (drawn[2 * layer + 1] >= 0.8 * drawn[2 * layer]).float() for layer in range(encoder.num_layers)}
    assert any((gate == 0).any() for gate in gates.values())
    with gated_heads(model, gates):
        assert torch.allclose(model.train()(**rows).logits, found, atol=1e-6)


def test_none_need_miss():
    model, rows = without_dropout(small_start()[0]), inputs(4)
    whole = model.train()(**rows).logits
    with heads_missing(model, 0.0):
        assert torch.equal(model(**rows).logits, whole)
