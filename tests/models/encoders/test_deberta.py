"""What only DeBERTa has: projections of relative positions, and a convolution in larger models."""

from __future__ import annotations

import copy

import pytest
import torch

from auber.models import checkpoint
from auber.models.plan import PruningPlan
from auber.models.surgery import masked, remove
from tests.scoring.test_scorer import assert_predicts_like_the_pruned, random_rows
from tests.tiny_models import HEADS, LAYERS, random_batch, tiny_model

CHANGES = {
    "own-projections": {"share_att_key": False},
    "content-to-position": {"share_att_key": False, "pos_att_type": ["c2p"]},
    "position-to-content": {"share_att_key": False, "pos_att_type": ["p2c"]},
    "no-relative-positions": {"relative_attention": False, "position_biased_input": True},
    "no-buckets": {"position_buckets": -1, "max_relative_positions": -1, "norm_rel_ebd": "none"},
    "token-types": {"type_vocab_size": 2, "position_biased_input": True},
    "convolution": {"conv_kernel_size": 3, "conv_act": "gelu"},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_masked_equals_removed_and_saved(changes, tmp_path):
    model = tiny_model("deberta-v2", **changes)
    batch = random_batch(model)
    plan = {0: [2], 1: [0, 1, 3], 2: [1, 2]}
    with torch.no_grad():
        whole = model(**batch).logits
        with masked(model, plan):
            expected = model(**batch).logits
        assert (expected - whole).abs().max() > 1e-3
        remove(model, plan)
        removed = model(**batch).logits
        torch.testing.assert_close(removed, expected, atol=1e-5, rtol=0)
        checkpoint.save(model, None, tmp_path)
        assert torch.equal(checkpoint.load(tmp_path)(**batch).logits, removed)


@pytest.mark.parametrize("layer", [0, LAYERS - 1])
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_the_scorer_predicts_what_the_pruned_model_predicts(changes, layer):
    model = tiny_model("deberta-v2", num_labels=3, **changes)
    remove(model, PruningPlan({(layer + 1) % LAYERS: [2], layer: [0]}))
    assert_predicts_like_the_pruned(
        model, layer, random_rows(token_types="type_vocab_size" in changes)
    )


def test_the_scorer_of_a_layer_behind_which_a_convolution_ends_the_model():
    model = tiny_model("deberta-v2", num_labels=3, num_hidden_layers=1, conv_kernel_size=3)
    remove(model, {0: [0]})
    assert_predicts_like_the_pruned(model, 0, random_rows(token_types=False))


def test_a_layer_without_heads_gives_weights_of_no_head():
    model = tiny_model("deberta-v2")
    remove(model, {1: range(HEADS)}, allow_empty_layers=True)
    twin = copy.deepcopy(model).train()
    batch = random_batch(model)
    with torch.no_grad():
        attentions = model(**batch, output_attentions=True).attentions
    assert [weights.shape for weights in attentions] == [(4, 4, 9, 9), (4, 0, 9, 9), (4, 4, 9, 9)]
    twin(**batch).logits.sum().backward()
    assert torch.isfinite(twin.deberta.encoder.layer[0].attention.self.value_proj.weight.grad).all()
