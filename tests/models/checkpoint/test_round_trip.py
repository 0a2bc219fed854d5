"""Model folders: what is loaded computes exactly what was saved."""

from __future__ import annotations

import json

import pytest
import torch

from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.surgery import remove_heads
from auber.training.outputs import OUTPUTS
from tests.kinds import TOKEN_KINDS
from tests.models.checkpoint.made import PLAN, edit_config, output
from tests.tiny_models import HEADS, MODEL_TYPES, random_batch, tiny_model, tiny_tokenizer


@pytest.mark.parametrize("kind", TOKEN_KINDS)
@pytest.mark.parametrize("plan", [PLAN, {}], ids=["pruned", "whole"])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_classifier_of_tokens_computes_exactly_the_same(model_type, plan, kind, tmp_path):
    model = tiny_model(model_type, kind=kind)
    remove_heads(model, plan)
    batch = random_batch(model)
    checkpoint.save(model, None, tmp_path)
    loaded = checkpoint.load(tmp_path)
    assert type(loaded) is type(model)
    assert encoder_of(loaded).removed == PruningPlan(plan)
    logits = OUTPUTS[kind].logits
    with torch.no_grad():
        assert torch.equal(logits(loaded(**batch)), logits(model(**batch)))


@pytest.mark.parametrize("bare", [False, True], ids=["classifier", "bare"])
@pytest.mark.parametrize("plan", [PLAN, {}], ids=["pruned", "whole"])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_loaded_model_computes_exactly_the_same(model_type, plan, bare, tmp_path):
    model = tiny_model(model_type, bare=bare)
    remove_heads(model, plan)
    batch = random_batch(model)
    checkpoint.save(model.train(), None, tmp_path)
    loaded = checkpoint.load(tmp_path)
    assert type(loaded) is type(model)
    assert not loaded.training
    assert encoder_of(loaded).removed == PruningPlan(plan)
    assert torch.equal(output(loaded, batch), output(model.eval(), batch))
    if (
        "token_type_ids" in batch
    ):  # the model then reads its own buffer of zeros, which is in no file
        del batch["token_type_ids"]
        assert torch.equal(output(loaded, batch), output(model, batch))
    buffers = dict(model.named_buffers())
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in loaded.named_buffers())
    assert checkpoint.weights_digest(loaded) == checkpoint.weights_digest(model)


@pytest.mark.parametrize("plan", [PLAN, {}], ids=["pruned", "whole"])
def test_dtype_attention_and_training_are_kept(plan, tmp_path):
    model = tiny_model().to(torch.bfloat16)
    remove_heads(model, plan)
    checkpoint.save(model, None, tmp_path)
    loaded = checkpoint.load(tmp_path, device="cpu", attn_implementation="eager")
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.bfloat16}
    assert loaded.config._attn_implementation == "eager"
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    assert torch.equal(loaded.classifier.weight, model.classifier.weight)


def test_a_layer_without_heads_round_trips(tmp_path):
    model = tiny_model()
    remove_heads(model, {1: range(HEADS)}, allow_empty_layers=True)
    checkpoint.save(model, None, tmp_path)
    batch = random_batch(model)
    assert torch.equal(output(checkpoint.load(tmp_path), batch), output(model, batch))
    assert len(checkpoint.weights_digest(model)) == 32


def test_a_loaded_model_can_be_pruned_trained_and_saved_again(folder, tmp_path):
    model = checkpoint.load(folder)
    remove_heads(model, {0: [0]})
    model.train()
    batch = random_batch(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(**batch).logits.square().sum().backward()
    optimizer.step()
    checkpoint.save(model, checkpoint.load_tokenizer(folder), folder)
    again = checkpoint.load(folder)
    assert encoder_of(again).removed == PruningPlan({0: [0, 1], 2: [0, 2, 3]})
    assert torch.equal(output(again, batch), output(model.eval(), batch))


def test_loading_draws_no_random_numbers(folder):
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    checkpoint.load(folder)
    checkpoint.load_classifier(folder, num_labels=2)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_config_records_what_others_need(folder):
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["auber_removed_heads"] == {"0": [1], "2": [0, 2, 3]}
    assert config["dtype"] == "float32"


def test_the_tokenizer_round_trips(folder):
    loaded, original = checkpoint.load_tokenizer(folder), tiny_tokenizer()
    assert loaded("the film is good").input_ids == original("the film is good").input_ids
    assert original.unk_token_id not in loaded("the film is good").input_ids


def test_a_folder_of_transformers_4_with_pruned_heads(folder):
    batch = random_batch(checkpoint.load(folder))
    expected = output(checkpoint.load(folder), batch)
    edit_config(folder, auber_removed_heads=None, pruned_heads={"0": [1], "2": [0, 2, 3]})
    loaded = checkpoint.load(folder)
    assert encoder_of(loaded).removed == PruningPlan(PLAN)
    assert torch.equal(output(loaded, batch), expected)
