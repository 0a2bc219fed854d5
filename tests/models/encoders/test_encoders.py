"""Every family's adapter against the transformers model it wraps."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from auber.errors import ModelError
from auber.models.encoders import FAMILIES, encoder_of, family_of
from auber.models.plan import PruningPlan
from auber.models.surgery import remove_heads
from tests.tiny_models import (
    HEADS,
    HIDDEN,
    LAYERS,
    MAX_LENGTH,
    MODEL_TYPES,
    tiny_config,
    tiny_model,
)


@pytest.mark.parametrize("bare", [False, True], ids=["classifier", "bare"])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_sizes_are_read_from_the_model(model_type, bare):
    model = tiny_model(model_type, bare=bare)
    encoder = encoder_of(model)
    assert (encoder.num_layers, encoder.num_heads, encoder.hidden_size, encoder.head_dim) == (
        LAYERS,
        HEADS,
        HIDDEN,
        8,
    )
    assert encoder.removed == PruningPlan()
    assert encoder.present(0) == (0, 1, 2, 3)
    remove_heads(model, {1: [0, 2]})
    assert encoder.removed == PruningPlan({1: [0, 2]})
    assert encoder.present(1) == (1, 3)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_as_many_tokens_as_a_row_may_have(model_type):
    model = tiny_model(model_type)
    longest = encoder_of(model).num_positions
    assert longest == MAX_LENGTH + (
        2 if model_type in ("camembert", "mpnet", "roberta", "xlm-roberta") else 4
    )
    assert model(torch.full((1, longest), 7)).logits.isfinite().all()


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_parameter_of_the_layers_is_in_parts(model_type):
    encoder = encoder_of(tiny_model(model_type))
    parts = encoder.parts(0)
    projections = [getattr(one, "fused", one) for one in parts.projections]
    named = [value for value in vars(parts).values() if isinstance(value, nn.Module)] + projections
    found = {id(parameter) for module in named for parameter in module.parameters()}
    places = {"distilbert": "transformer.layer", "modernbert": "layers"}
    layers = encoder.base.get_submodule(places.get(model_type, "encoder.layer"))
    assert found == {id(parameter) for parameter in layers[0].parameters()}


def test_a_bare_encoder_cannot_classify():
    encoder = encoder_of(tiny_model(bare=True))
    with pytest.raises(
        ModelError,
        match=r"^BertModel has no classifier; fine-tune it first, or load it as \.\.\.ForSeq",
    ):
        encoder.classify(torch.zeros(1, HIDDEN))


def test_families_name_themselves():
    assert list(FAMILIES) == sorted(FAMILIES)
    assert all(adapter.family == name for name, adapter in FAMILIES.items())
    assert sorted(kind for adapter in FAMILIES.values() for kind in adapter.model_types) == sorted(
        MODEL_TYPES
    )


def test_the_table_of_families_needs_no_transformers():
    code = "import sys, auber.models.encoders, auber.models.surgery, auber.models.checkpoint; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_unsupported_architectures_are_named():
    with pytest.raises(
        ModelError, match=r"^A model of type 'gpt2' cannot be pruned; use one of: bert, camembert, "
    ):
        family_of("gpt2")
    reason = r"'albert' cannot be pruned \(it shares one layer's weights over all layers, so a head cannot be removed"
    with pytest.raises(ModelError, match=reason):
        family_of("albert")
    with pytest.raises(
        ModelError, match=r"^A transformers model is needed, found Linear; unwrap it first$"
    ):
        encoder_of(nn.Linear(2, 2))


def test_a_decoder_is_refused():
    with pytest.raises(
        ModelError, match=r"^BertForSequenceClassification is configured as a decoder"
    ):
        encoder_of(tiny_model("bert", is_decoder=True))


def test_a_config_object_shared_by_two_models_is_found_out():
    from transformers import BertModel

    config = tiny_config("bert")
    first, second = BertModel(config), BertModel(config)
    remove_heads(first, {2: [1]})
    with pytest.raises(
        ModelError,
        match=r"^layer 2: with heads \[1\] removed, .* query must be 24 wide, found 32; load",
    ):
        encoder_of(second)


def test_a_wrapped_projection_is_refused():
    class LowRank(nn.Linear):
        pass

    model = tiny_model()
    model.bert.encoder.layer[1].attention.self.value = LowRank(HIDDEN, HIDDEN)
    with pytest.raises(
        ModelError,
        match=r"^layer 1: its value must be a plain Linear, found LowRank; merge adapters",
    ):
        encoder_of(model)
