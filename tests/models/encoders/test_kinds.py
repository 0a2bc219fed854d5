"""Classifiers that read every token, for every family: masks, slices, and the forward pass in pieces."""

from __future__ import annotations

import copy

import pytest
import torch

from auber.models.encoders import encoder_of
from auber.models.surgery import masked_heads, remove_heads
from auber.training.outputs import OUTPUTS
from tests.kinds import TOKEN_KINDS
from tests.tiny_models import MODEL_TYPES, random_batch, tiny_model

CASES = [(model_type, kind) for model_type in MODEL_TYPES for kind in TOKEN_KINDS]
PLAN = {0: [1], 1: [0, 3], 2: [0, 1, 2]}


@torch.no_grad()
def logits_of(model, kind, batch):
    return OUTPUTS[kind].logits(model(**batch))


@pytest.mark.parametrize(("model_type", "kind"), CASES)
def test_a_mask_computes_what_the_slice_computes(model_type, kind):
    model = tiny_model(model_type, kind=kind)
    batch = random_batch(model)
    whole = logits_of(model, kind, batch)
    with masked_heads(model, PLAN):
        masked = logits_of(model, kind, batch)
    remove_heads(model, PLAN)
    tokens = batch["attention_mask"].bool()
    torch.testing.assert_close(
        masked[tokens], logits_of(model, kind, batch)[tokens], atol=1e-5, rtol=1e-5
    )
    assert (masked - whole)[tokens].abs().max() > 1e-3


@torch.no_grad()
@pytest.mark.parametrize(("model_type", "kind"), CASES)
def test_the_classifier_reads_every_token(model_type, kind):
    model = tiny_model(model_type, kind=kind)
    encoder, batch = encoder_of(model), random_batch(model)
    assert encoder.reads == "all"
    assert encoder.kind.name == kind
    hidden = encoder.base(**batch)[0]  # (rows, length, hidden)
    torch.testing.assert_close(
        encoder.classify(hidden.flatten(0, 1)), logits_of(model, kind, batch).flatten(0, 1)
    )


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_a_mean_is_read_by_a_sequence_classifier_alone(kind):
    changes = {"classifier_pooling": "mean"}
    assert encoder_of(tiny_model("modernbert", **changes)).reads == "mean"
    assert encoder_of(tiny_model("modernbert", kind=kind, **changes)).reads == "all"


def test_gates_of_single_rows_reach_their_row_alone():
    from auber.models.surgery import gated_heads

    model = tiny_model(kind="tokens")
    batch = random_batch(model, padded=False)
    before = logits_of(copy.deepcopy(model), "tokens", batch)
    gates = torch.ones(4, 4)
    gates[2, 1] = 0
    with gated_heads(model, {1: gates}):
        after = logits_of(model, "tokens", batch)
    changed = (after - before).abs().amax((1, 2))
    assert changed[2] > 1e-3
    assert changed[[0, 1, 3]].max() < 1e-6
