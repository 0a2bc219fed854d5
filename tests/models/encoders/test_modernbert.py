"""What only ModernBERT has: a fused projection, windows, norms that come first, mean pooling."""

from __future__ import annotations

import pytest
import torch

from auber.models.encoders import encoder_of
from auber.models.encoders.attention import OUT_OF_REACH
from auber.models.plan import PruningPlan
from auber.models.surgery import remove
from auber.training.devices import cast_copy
from tests.kinds import TOKEN_KINDS
from tests.scoring.test_scorer import assert_predicts_like_the_pruned, random_rows
from tests.tiny_models import LAYERS, tiny_model


@pytest.mark.parametrize("kind", ["sequence", *TOKEN_KINDS])
def test_only_a_sequence_classifier_reads_a_mean(kind):
    encoder = encoder_of(tiny_model("modernbert", kind=kind, classifier_pooling="mean"))
    assert encoder.reads == ("mean" if kind == "sequence" else "all")


def test_windows_end_where_rows_are_longer():
    # Layers: global, local, local; 3 tokens to each side.
    encoder = encoder_of(tiny_model("modernbert"))
    assert [attention.bias for attention in encoder.attentions(4)] == [None] * 3
    whole, local, _ = encoder.attentions(6)
    assert whole.bias is None
    reached = local.bias[0] == 0
    assert reached.tolist() == [
        [abs(asking - asked) <= 3 for asked in range(6)] for asking in range(6)
    ]
    assert local.bias[0][~reached].eq(OUT_OF_REACH).all()
    assert not torch.equal(whole.rotation.sine, local.rotation.sine)  # each at its own pace


CHANGES = {
    "mean": {"classifier_pooling": "mean"},
    "biases": {
        "attention_bias": True,
        "norm_bias": True,
        "mlp_bias": True,
        "classifier_bias": True,
    },
    "all-global": {"layer_types": ["full_attention"] * 3},
    "last-global": {"layer_types": ["sliding_attention", "sliding_attention", "full_attention"]},
}


@pytest.mark.parametrize("layer", [0, LAYERS - 1])
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_the_scorer_predicts_what_the_pruned_model_predicts(changes, layer):
    model = tiny_model("modernbert", num_labels=3, **changes)
    remove(model, PruningPlan({(layer + 1) % LAYERS: [2], layer: [0]}))
    assert_predicts_like_the_pruned(model, layer, random_rows(token_types=False))


def test_a_cast_copy_keeps_the_angles():
    model = tiny_model("modernbert")
    exact = encoder_of(model).attentions(500)[0].rotation
    low = (
        encoder_of(cast_copy(model, torch.device("cpu"), torch.bfloat16))
        .attentions(500)[0]
        .rotation
    )
    assert low.sine.dtype == torch.bfloat16
    # Their own rounding, and not that of the frequencies.
    assert (low.sine - exact.sine).abs().max() < 2**-8
    assert model.dtype == torch.float32
