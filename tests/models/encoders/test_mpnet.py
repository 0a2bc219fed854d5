"""What only MPNet has: the shared table of relative biases."""

from __future__ import annotations

import torch

from auber.models.surgery import masked, remove
from tests.tiny_models import HEADS, random_batch, tiny_model


def test_each_layer_takes_the_columns_of_its_own_heads():
    model = tiny_model("mpnet")
    batch = random_batch(model)
    with torch.no_grad(), masked(model, {0: [0, 3], 1: [2]}):
        expected = model(**batch).logits
    remove(model, {0: [3]})
    remove(model, {0: [0], 1: [2]})  # a second cut of the same layer
    attention = model.mpnet.encoder.layer[0].attention.attn
    assert attention.present_heads.tolist() == [1, 2]
    assert len(attention._forward_pre_hooks) == 1
    with torch.no_grad():
        torch.testing.assert_close(model(**batch).logits, expected, atol=1e-5, rtol=0)
        # the wrong columns would be noticed
        attention.present_heads = torch.tensor([0, 3])
        assert (model(**batch).logits - expected).abs().max() > 1e-3


def test_one_bias_is_cut_for_all_rows():
    model = tiny_model("mpnet")
    remove(model, {0: [1]})
    encoder = model.mpnet.encoder
    attention, given = encoder.layer[0].attention.attn, []
    attention.register_forward_pre_hook(lambda _, arguments: given.append(arguments[2]))
    batch = random_batch(model)
    rows, length = batch["input_ids"].shape
    model(**batch).logits.sum().backward()
    whole = encoder.compute_position_bias(torch.empty(rows, length))  # a copy a row
    assert given[0].shape == (1, HEADS - 1, length, length)
    for row in whole:
        assert torch.equal(given[0][0], row[[0, 2, 3]])
    assert encoder.relative_attention_bias.weight.grad.abs().sum() > 0, "tuning reaches the table"


def test_the_bias_may_come_by_name():
    model = tiny_model("mpnet")
    remove(model, {0: [1]})
    attention, hidden = model.mpnet.encoder.layer[0].attention.attn, torch.randn(1, 5, 32)
    bias = model.mpnet.encoder.compute_position_bias(hidden)
    by_place, by_name = attention(hidden, None, bias), attention(hidden, position_bias=bias)
    assert torch.equal(by_name[0], by_place[0])
