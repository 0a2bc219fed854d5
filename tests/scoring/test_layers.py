"""A model's layers on packed tokens against the transformers model itself."""

from __future__ import annotations

import pytest
import torch

from auber.models.encoders import encoder_of
from auber.models.surgery import remove_heads
from auber.scoring.layers import pack_layers
from auber.scoring.packing import Slab
from tests.tiny_models import HEADS, MODEL_TYPES, random_batch, tiny_model

PLANS = [{}, {0: [1], 2: [0, 2, 3]}]


def packed_logits(model, batch, *, first_only):
    """The logits by packed layers; rows must be sorted by length, longest first."""
    encoder = encoder_of(model)
    tokens = batch["attention_mask"].bool()
    slab = Slab(tuple(tokens.sum(1).tolist()), torch.device("cpu"))
    hidden = encoder.embed(batch["input_ids"], batch.get("token_type_ids"))[tokens]
    layers = pack_layers(encoder, tokens.shape[1], None)
    for layer in layers[:-1]:
        hidden = layer.finish(layer.context(hidden, slab), hidden, slab)
    if first_only:
        hidden = layers[-1].finish(
            layers[-1].first_context(hidden, slab), hidden[slab.firsts], slab
        )
    else:
        hidden = layers[-1].finish(layers[-1].context(hidden, slab), hidden, slab)[slab.firsts]
    return encoder.classify(hidden)


@pytest.mark.parametrize("plan", PLANS, ids=["whole", "pruned"])
@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_packed_layers_compute_what_the_model_computes(model_type, labels, plan):
    model = tiny_model(model_type, num_labels=labels)
    remove_heads(model, plan)
    for padded in (True, False):
        batch = random_batch(model, padded=padded)
        order = batch["attention_mask"].sum(1).argsort(descending=True)
        batch = {name: tensor[order] for name, tensor in batch.items()}
        with torch.no_grad():
            expected = model(**batch).logits
            assert expected.shape == (4, labels)
            assert expected.std() > 0.1
            for first_only in (False, True):
                found = packed_logits(model, batch, first_only=first_only)
                torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_layer_without_heads_still_computes(model_type):
    model = tiny_model(model_type)
    remove_heads(model, {1: range(HEADS)}, allow_empty_layers=True)
    batch = random_batch(model, padded=False)
    with torch.no_grad():
        torch.testing.assert_close(
            packed_logits(model, batch, first_only=True), model(**batch).logits, atol=1e-5, rtol=0
        )
