"""Every family's adapter against the transformers model that it wraps."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn
from transformers import BertForMaskedLM

from auber.errors import ModelError
from auber.models.encoders import FAMILIES, encoder_of, family_of
from auber.models.plan import PruningPlan
from auber.models.surgery import masked, remove
from auber.training.outputs import outputs_of
from tests.kinds import TOKEN_KINDS
from tests.tiny_models import (
    HEADS,
    HIDDEN,
    LAYERS,
    MAX_LENGTH,
    MODEL_TYPES,
    random_batch,
    tiny_config,
    tiny_model,
)

FROM_PADDING = ("camembert", "mpnet", "roberta", "xlm-roberta")  # count positions from its index
PLAN = {0: [1], 1: [0, 3], 2: [0, 1, 2]}


class LowRank(nn.Linear):
    """Stands in for the wrapper of an adapter."""


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_sizes_are_read_from_the_model(model_type):
    model = tiny_model(model_type, bare=True)
    encoder = encoder_of(model)
    sizes = (encoder.num_layers, encoder.num_heads, encoder.hidden_size, encoder.head_dim)
    assert sizes == (LAYERS, HEADS, HIDDEN, 8)
    assert encoder.removed == PruningPlan()
    assert encoder.present(0) == (0, 1, 2, 3)
    remove(model, {1: [0, 2]})
    assert encoder.removed == PruningPlan({1: [0, 2]})
    assert encoder.present(1) == (1, 3)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_largest_number_of_tokens(model_type):
    model = tiny_model(model_type)
    longest = encoder_of(model).num_positions
    assert longest == MAX_LENGTH + (2 if model_type in FROM_PADDING else 4)
    assert model(torch.full((1, longest), 7)).logits.isfinite().all()


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_parameter_of_a_layer_is_in_its_parts(model_type):
    encoder = encoder_of(tiny_model(model_type))
    parts = encoder.parts(0)
    projections = [getattr(one, "fused", one) for one in parts.projections]
    modules = [value for value in vars(parts).values() if isinstance(value, nn.Module)]
    found = {id(parameter) for each in modules + projections for parameter in each.parameters()}
    places = {"distilbert": "transformer.layer", "modernbert": "layers"}
    layers = encoder.base.get_submodule(places.get(model_type, "encoder.layer"))
    assert found == {id(parameter) for parameter in layers[0].parameters()}


@torch.no_grad()
@pytest.mark.parametrize("kind", TOKEN_KINDS)
@pytest.mark.parametrize("model_type", ["bert", "deberta-v2", "distilbert", "modernbert"])
def test_classifiers_of_tokens(model_type, kind):
    """Masked equals removed, and the classifier reads every token."""
    model = tiny_model(model_type, kind=kind)
    encoder, batch = encoder_of(model), random_batch(model)
    tokens = batch["attention_mask"].bool()

    def logits():
        return outputs_of(kind).logits(model(**batch))

    whole = logits()
    assert encoder.reads == "all"
    assert encoder.task_type.name == kind
    hidden = encoder.base(**batch)[0]  # (rows, length, hidden)
    torch.testing.assert_close(encoder.classify(hidden.flatten(0, 1)), whole.flatten(0, 1))
    with masked(model, PLAN):
        expected = logits()
    remove(model, PLAN)
    torch.testing.assert_close(expected[tokens], logits()[tokens], atol=1e-5, rtol=1e-5)
    assert (expected - whole)[tokens].abs().max() > 1e-3


def test_another_head_cannot_classify():
    encoder = encoder_of(BertForMaskedLM(tiny_config("bert")))
    message = (
        r"^BertForMaskedLM has a head of another kind; load it as \.\.\.ForSeq.* or \.\.\.Model$"
    )
    with pytest.raises(ModelError, match=message):
        encoder.classify(torch.zeros(1, HIDDEN))


def test_the_table_of_families():
    assert list(FAMILIES) == sorted(FAMILIES)
    assert all(adapter.family == name for name, adapter in FAMILIES.items())
    model_types = [name for adapter in FAMILIES.values() for name in adapter.model_types]
    assert sorted(model_types) == sorted(MODEL_TYPES)
    code = (
        "import sys, auber.models.encoders, auber.models.surgery, auber.models.checkpoint\n"
        "sys.exit('transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("model_type", "message"),
    [
        ("gpt2", r"^A model of type 'gpt2' cannot be pruned; use one of: bert, camembert, "),
        ("albert", r"'albert' cannot be pruned \(it shares one layer's weights over all layers,"),
    ],
)
def test_other_families_are_refused(model_type, message):
    with pytest.raises(ModelError, match=message):
        family_of(model_type)


def test_other_objects_are_refused():
    message = "^A transformers model is needed, found Linear; unwrap it first$"
    with pytest.raises(ModelError, match=message):
        encoder_of(nn.Linear(2, 2))
    wrapped = nn.Linear(2, 2)
    wrapped.config = tiny_model("bert").config
    with pytest.raises(ModelError, match=message):
        encoder_of(wrapped)
    with pytest.raises(ModelError, match="^BertForSequenceClassification is configured as a deco"):
        encoder_of(tiny_model("bert", is_decoder=True))


def test_a_config_that_two_models_share_is_refused():
    from transformers import BertModel

    config = tiny_config("bert")
    first, second = BertModel(config), BertModel(config)
    remove(first, {2: [1]})
    message = r"^layer 2: with heads \[1\] removed, .* query must be 24 wide, found 32; load"
    with pytest.raises(ModelError, match=message):
        encoder_of(second)


@pytest.mark.parametrize(
    ("model_type", "module", "name"),
    [
        ("bert", "encoder.layer.1.attention.self.value", "value"),
        ("deberta-v2", "encoder.layer.1.attention.self.pos_query_proj", "position projection"),
        ("modernbert", "layers.1.attn.Wqkv", "query"),
        ("bert", "encoder.layer.1.intermediate.dense", "feed-forward expansion"),
        ("distilbert", "transformer.layer.1.ffn.lin2", "feed-forward contraction"),
    ],
)
def test_a_wrapped_projection_is_refused(model_type, module, name):
    changes = {"share_att_key": False} if model_type == "deberta-v2" else {}
    model = tiny_model(model_type, **changes)
    parent, _, child = module.rpartition(".")
    old = model.base_model.get_submodule(module)
    wrapped = LowRank(old.in_features, old.out_features)
    setattr(model.base_model.get_submodule(parent), child, wrapped)
    message = f"^layer 1 of .*: its {name} must be a plain Linear, found LowRank; merge adapters"
    with pytest.raises(ModelError, match=message):
        encoder_of(model)


def test_another_feed_forward_is_refused():
    class Experts(nn.Module):
        """Stands in for a mixture of experts."""

    model = tiny_model("roberta")
    model.base_model.encoder.layer[2].intermediate = Experts()
    message = (
        "^RobertaForSequenceClassification: its attention or feed-forward is not that of a roberta "
        "in transformers \\('Experts' object has no attribute 'dense'\\); only those can be pruned$"
    )
    with pytest.raises(ModelError, match=message):
        encoder_of(model)
