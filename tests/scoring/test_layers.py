"""A model's layers on packed tokens against the transformers model."""

from __future__ import annotations

import pytest
import torch

from auber.models.encoders import encoder_of
from auber.models.surgery import remove
from auber.scoring.layers import _by_offset, pack_layers
from auber.scoring.packing import PackedBatch
from tests.tiny_models import HEADS, MODEL_TYPES, random_batch, tiny_model


def packed_logits(model, inputs, *, first_only):
    """Return the logits of packed layers; rows must be sorted by length, longest first."""
    encoder = encoder_of(model)
    tokens = inputs["attention_mask"].bool()
    batch = PackedBatch(tuple(tokens.sum(1).tolist()), torch.device("cpu"))
    hidden = encoder.embed(inputs["input_ids"], inputs.get("token_type_ids"))[tokens]
    *layers, last = pack_layers(encoder, tokens.shape[1], None)
    for layer in layers:
        hidden = layer.finish(layer.context(hidden, batch), hidden, batch)
    if first_only:
        hidden = last.finish(last.first_context(hidden, batch), hidden[batch.firsts], batch)
    else:
        hidden = last.finish(last.context(hidden, batch), hidden, batch)[batch.firsts]
    return encoder.classify(hidden)


@pytest.mark.parametrize("plan", [{}, {0: [1], 2: [0, 2, 3]}], ids=["whole", "pruned"])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_packed_layers_compute_what_the_model_computes(model_type, plan):
    model = tiny_model(model_type, num_labels=3)
    remove(model, plan)
    for padded in (True, False):
        inputs = random_batch(model, padded=padded)
        order = inputs["attention_mask"].sum(1).argsort(descending=True)
        inputs = {name: tensor[order] for name, tensor in inputs.items()}
        with torch.no_grad():
            expected = model(**inputs).logits
            assert expected.shape == (4, 3)
            assert expected.std() > 0.1
            for first_only in (False, True):
                found = packed_logits(model, inputs, first_only=first_only)
                torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_layer_without_heads_still_computes(model_type):
    model = tiny_model(model_type)
    remove(model, {1: range(HEADS)}, allow_empty_layers=True)
    inputs = random_batch(model, padded=False)
    with torch.no_grad():
        found, expected = packed_logits(model, inputs, first_only=True), model(**inputs).logits
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_a_bias_by_offset_is_not_mirrored():
    bias = encoder_of(tiny_model("mpnet")).attentions(7)[0].bias  # (heads, queries, keys)
    place = torch.arange(7)
    offsets = place[None, :] - place[:, None]  # key minus query
    assert torch.equal(_by_offset(bias, HEADS)[:, offsets + 6], bias)
    assert not torch.equal(bias, bias.mT)
