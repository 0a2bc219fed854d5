"""Model folders: saved as a whole, loaded exactly, refused in one line if they are damaged."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from auber.data.task_types import TASK_TYPES, task_type_of_class
from auber.errors import CheckpointError, ModelError
from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.remote_code import needs_code
from auber.models.surgery import remove
from auber.training.outputs import outputs_of
from tests.kinds import METRICS_OF, TOKEN_KINDS
from tests.models.conftest import PLAN, edit_config
from tests.tiny_models import (
    HEADS,
    MODEL_TYPES,
    NEURONS,
    random_batch,
    tiny_config,
    tiny_model,
    tiny_tokenizer,
)

KEY = "bert.encoder.layer.1.attention.self.key.weight"


@pytest.fixture
def pretrained(tmp_path):
    """A folder with a bare encoder and a tokenizer."""
    checkpoint.save(tiny_model(bare=True), tiny_tokenizer(), tmp_path / "pretrained")
    return tmp_path / "pretrained"


@torch.no_grad()
def output(model, batch):
    task_type = task_type_of_class(type(model).__name__)
    return outputs_of(task_type.name).logits(model(**batch))


def refuse(message):
    return pytest.raises(CheckpointError, match=message)


# Save and load


EVEN = {0: range(8), 1: range(8, 16), 2: range(16, 24)}
PLANS = {
    "heads": PruningPlan(PLAN | {1: range(HEADS)}),
    "both": PruningPlan(PLAN, {0: range(NEURONS), 2: [0, 5, 6]}),
    "even": PruningPlan(neurons=EVEN),
    "heads, even": PruningPlan(PLAN, EVEN),
    "whole": PruningPlan(),
}


@pytest.mark.parametrize(
    ("model_type", "form", "plan"),
    [
        *(
            (model_type, "sequence", name)
            for model_type in MODEL_TYPES
            for name in ("both", "even")
        ),
        *(("bert", "sequence", name) for name in PLANS if name not in ("both", "even")),
        *(("bert", form, name) for form in METRICS_OF for name in ("both", "whole")),
    ],
)
def test_a_loaded_model_computes_exactly_the_same(model_type, form, plan, tmp_path):
    plan, model = PLANS[plan], tiny_model(model_type, kind=form)
    remove(model, plan, allow_empty_layers=True)
    batch = random_batch(model)
    checkpoint.save(model.train(), None, tmp_path)
    loaded = checkpoint.load(tmp_path)
    assert type(loaded) is type(model)
    assert not loaded.training
    assert encoder_of(loaded).removed == plan
    assert (tmp_path / "modeling_auber.py").exists() == needs_code(model.config)
    assert torch.equal(output(loaded, batch), output(model.eval(), batch))
    if batch.pop("token_type_ids", None) is not None:  # it then reads a buffer that is in no file
        assert torch.equal(output(loaded, batch), output(model, batch))
    buffers = dict(model.named_buffers())
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in loaded.named_buffers())
    assert checkpoint.weights_digest(loaded) == checkpoint.weights_digest(model)


@pytest.mark.parametrize("plan", [PLAN, {}], ids=["pruned", "whole"])
def test_dtype_attention_and_requires_grad_are_kept(plan, tmp_path):
    model = tiny_model().to(torch.bfloat16)
    remove(model, plan)
    checkpoint.save(model, None, tmp_path)
    loaded = checkpoint.load(tmp_path, device="cpu", attn_implementation="eager")
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.bfloat16}
    assert loaded.config._attn_implementation == "eager"
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    assert torch.equal(loaded.classifier.weight, model.classifier.weight)


def test_loading_draws_no_random_numbers(folder):
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    checkpoint.load(folder)
    checkpoint.load_classifier(folder, num_labels=2)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_config_and_tokenizer_round_trip(folder):
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["auber_removed_heads"] == {"0": [1], "2": [0, 2, 3]}
    assert config["dtype"] == "float32"
    loaded, original = checkpoint.load_tokenizer(folder), tiny_tokenizer()
    assert loaded("the film is good").input_ids == original("the film is good").input_ids
    assert original.unk_token_id not in loaded("the film is good").input_ids


# The digest


def test_the_digest_changes_with_every_bit_and_swap():
    model = tiny_model("bert")
    digest = checkpoint.weights_digest(model)
    weight = model.classifier.weight.data
    bits = weight.view(torch.int32).view(-1)
    for place in (0, 5, 31):
        for bit in (0, 11, 31):
            bits[place] ^= torch.tensor(1, dtype=torch.int32) << bit
            assert checkpoint.weights_digest(model) != digest
            bits[place] ^= torch.tensor(1, dtype=torch.int32) << bit
    assert checkpoint.weights_digest(model) == digest
    weight[0, [3, 4]] = weight[0, [4, 3]]
    assert checkpoint.weights_digest(model) != digest


@pytest.mark.gpu
def test_the_digest_is_the_same_on_a_gpu():
    model = tiny_model("bert")
    assert checkpoint.weights_digest(model) == checkpoint.weights_digest(model.cuda())


def test_the_digest_distinguishes_models():
    model = tiny_model("mpnet")
    digest = checkpoint.weights_digest(model)
    assert digest == checkpoint.weights_digest(tiny_model("mpnet"))
    assert digest != checkpoint.weights_digest(model.to(torch.bfloat16))
    # Equal tensors of different heads read different columns of MPNet's bias.
    digests = set()
    for head in (0, 1):
        model = tiny_model("mpnet")
        for parameter in model.parameters():
            torch.nn.init.ones_(parameter)
        remove(model, {0: [head]})
        digests.add(checkpoint.weights_digest(model))
    assert len(digests) == 2


# A folder is written as a whole or not at all


def test_saving_replaces_the_whole_folder(folder):
    (folder / "left.txt").write_text("over")
    checkpoint.save(tiny_model(seed=1), None, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    mask = os.umask(0)
    os.umask(mask)
    assert folder.stat().st_mode & 0o777 == 0o777 & ~mask


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (
            OSError("disk full"),
            CheckpointError,
            r"cannot be written \(disk full\); choose another folder$",
        ),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
    ],
)
def test_a_failed_save_leaves_the_old_model(folder, monkeypatch, error, raised, message):
    before = checkpoint.weights_digest(checkpoint.load(folder))
    tokenizer = tiny_tokenizer()

    def fail(*_):
        raise error

    monkeypatch.setattr(tokenizer, "save_pretrained", fail)
    with pytest.raises(raised, match=message):
        checkpoint.save(tiny_model(seed=1), tokenizer, folder)
    assert checkpoint.weights_digest(checkpoint.load(folder)) == before
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_the_old_folder_is_put_back_if_the_rename_fails(folder, monkeypatch):
    rename = Path.rename

    def fail_for_the_new(self, target):
        if self.name == "new":
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_for_the_new)
    with refuse(r"cannot be written \(no\); choose another folder$"):
        checkpoint.save(tiny_model(seed=1), None, folder)
    assert encoder_of(checkpoint.load(folder)).removed == PruningPlan(PLAN)


def test_other_folders_and_files_are_not_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with refuse(r"exists and is not a model folder; choose another folder$"):
        checkpoint.save(tiny_model(), None, tmp_path)
    with refuse(r"exists and is not a folder; choose another name$"):
        checkpoint.save(tiny_model(), None, tmp_path / "thesis.tex")
    with refuse(r"cannot be written"):
        checkpoint.save(tiny_model(), None, tmp_path / "thesis.tex" / "model")


def test_a_model_with_another_head_is_not_saved(tmp_path):
    from transformers import BertForMaskedLM

    message = r"^One of \.\.\.ForSeq.*, \.\.\.Model can be saved, found BertForMask"
    with pytest.raises(ModelError, match=message):
        checkpoint.save(BertForMaskedLM(tiny_config("bert")), None, tmp_path)


# Damage to the weights and the tokenizer; for the config see test_source.py


@pytest.mark.parametrize("size", [0, 2000])
def test_truncated_weights(folder, size):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with refuse(r"(model.safetensors: is damaged|cannot be loaded) \(.*\)"):
        checkpoint.load(folder)


@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        (
            {"0": [1, 2]},
            r"the weights do not fit the recorded units \(size mismatch for .*the shape in curr",
        ),
        ({}, r"must have the shapes that config.json records, found others; if transformers 4 "),
    ],
)
def test_weights_that_do_not_fit_the_recorded_heads(folder, recorded, message):
    edit_config(folder, auber_removed_heads=recorded)
    with refuse(message):
        checkpoint.load(folder)


def test_widths_that_do_not_fit_the_recorded_neurons(tmp_path):
    model = tiny_model()
    remove(model, PruningPlan(neurons={0: [0, 1], 2: [5]}))
    checkpoint.save(model, None, tmp_path)
    for changes, message in (
        (
            {"auber_intermediate_sizes": [46, 48, 48]},
            r"config.json: records units that cannot be removed: auber_intermediate_sizes must "
            r"be the 48 neurons of each layer less those removed, found \[46, 48, 48\]; restore",
        ),
        (
            {"auber_intermediate_sizes": None},
            r"layers lost different numbers of neurons, 0 to 2, and auber_intermediate_sizes is "
            r"missing; restore it$",
        ),
        (
            {"auber_removed_neurons": {"0": "0-1", "2": "5", "1": "0-4000000"}},
            r"auber_intermediate_sizes must be the 48 neurons",
        ),
        (
            {"auber_removed_neurons": {"0": "0-1", "2": "77"}},
            r"layer 2: its neurons are numbered 0 to 47, the plan removes neuron 77; correct",
        ),
        (
            {"intermediate_size": 2**20, "auber_intermediate_sizes": [2**20 - 2, 2**20, 2**20 - 1]},
            r"the weights do not fit the recorded units \(size mismatch for bert.encoder.layer.0",
        ),
    ):
        checkpoint.save(model, None, tmp_path)
        edit_config(tmp_path, **changes)
        with refuse(message):
            checkpoint.load(tmp_path)


@pytest.mark.parametrize("pruned", [True, False])
def test_missing_and_unknown_tensors(folder, pruned):
    if not pruned:
        checkpoint.save(tiny_model(), None, folder)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    weight = tensors.pop(KEY)
    save_file(tensors, path, metadata={"format": "pt"})
    message = rf"do not fit .* \(Missing key\(s\) in state_dict: \"{KEY}\"\.\); restore config"
    with refuse(message if pruned else f"the weights lack {KEY}; save the model again$"):
        checkpoint.load(folder)
    if pruned:
        tensors |= {KEY: weight, "extra": weight.clone()}
        save_file(tensors, path, metadata={"format": "pt"})
        with refuse(r'recorded units \(Unexpected key\(s\) in state_dict: "extra"\.\); restore'):
            checkpoint.load(folder)


def test_no_tokenizer(folder):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with refuse(r": has no tokenizer files; save the tokenizer into the folder$"):
        checkpoint.load_tokenizer(folder)
    (folder / "tokenizer.json").write_text("{")
    with refuse(r": its tokenizer cannot be loaded \(.*\); save one into the folder$"):
        checkpoint.load_tokenizer(folder)


# Classifiers


def test_a_new_classifier_is_drawn_from_the_seed(pretrained, caplog, capfd):
    names = ["no", "maybe", "yes"]
    with caplog.at_level(logging.WARNING, logger="transformers"):
        first = checkpoint.load_classifier(pretrained, num_labels=3, label_names=names, seed=1)
    assert not caplog.records
    assert "LOAD REPORT" not in capfd.readouterr().err
    assert not first.is_trained
    config = first.model.config
    assert config.problem_type == "single_label_classification"
    assert config.id2label == {0: "no", 1: "maybe", 2: "yes"}
    assert config.label2id == {"no": 0, "maybe": 1, "yes": 2}
    assert first.tokenizer("good").input_ids == tiny_tokenizer()("good").input_ids
    assert first.model.classifier.weight.shape == (3, 32)
    torch.manual_seed(99)  # the global state does not matter
    same, other = (
        checkpoint.load_classifier(pretrained, num_labels=3, seed=seed).model for seed in (1, 2)
    )
    assert torch.equal(same.classifier.weight, first.model.classifier.weight)
    assert not torch.equal(other.classifier.weight, first.model.classifier.weight)
    own, others = (model.bert.embeddings.word_embeddings for model in (first.model, other))
    assert torch.equal(own.weight, others.weight)


def test_a_bare_encoder_in_bfloat16_gets_a_classifier_in_float32(tmp_path):
    checkpoint.save(tiny_model(bare=True, dtype="bfloat16"), tiny_tokenizer(), tmp_path)
    model = checkpoint.load_classifier(tmp_path, num_labels=1, is_regression=True).model
    assert model.config.problem_type == "regression"
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert output(model, random_batch(model)).shape == (4, 1)


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_a_classifier_of_tokens_is_drawn_or_kept(kind, pretrained, tmp_path):
    names = ["O", "B-A", "I-A"] if kind == "tokens" else None
    wanted = {"num_labels": 3 if names else 2, "label_names": names, "kind": kind}
    first, again, other = (
        checkpoint.load_classifier(pretrained, **wanted, seed=seed) for seed in (0, 0, 1)
    )
    assert not first.is_trained
    assert type(first.model).__name__.endswith(TASK_TYPES[kind].ending)
    head = "classifier.weight" if names else "qa_outputs.weight"
    drawn = [loaded.model.state_dict()[head] for loaded in (first, again, other)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    if names:
        assert first.model.config.id2label == dict(enumerate(names))
    checkpoint.save(first.model, first.tokenizer, tmp_path / "tuned")
    tuned = checkpoint.load_classifier(tmp_path / "tuned", **wanted, seed=5)
    assert tuned.is_trained
    assert torch.equal(tuned.model.state_dict()[head], drawn[0])


def test_a_trained_classifier_is_kept(folder, tmp_path):
    names = ["no", "yes"]
    loaded = checkpoint.load_classifier(folder, num_labels=2, label_names=names)
    assert loaded.is_trained
    assert loaded.classes == ("no", "yes")
    assert encoder_of(loaded.model).removed == PruningPlan(PLAN)
    whole = tiny_model()
    checkpoint.save(whole, tiny_tokenizer(), tmp_path / "whole")
    loaded = checkpoint.load_classifier(tmp_path / "whole", num_labels=2, label_names=names)
    assert loaded.is_trained
    assert loaded.classes is None  # they were only numbered
    assert loaded.model.config.id2label == {0: "no", 1: "yes"}
    batch = random_batch(whole)
    assert torch.equal(output(loaded.model, batch), output(whole, batch))


@pytest.mark.parametrize(("has", "wants"), [("sequence", "spans"), ("tokens", "sequence")])
def test_a_classifier_of_another_task_type_is_refused(has, wants, tmp_path):
    checkpoint.save(tiny_model(kind=has), tiny_tokenizer(), tmp_path)
    message = (
        rf"its classifier is one for {has} \(Bert{TASK_TYPES[has].ending}\), the task is of kind "
        rf"{wants} \(\.\.\.{TASK_TYPES[wants].ending}\); start from a model of that kind, or from "
        "the encoder without a classifier$"
    )
    with refuse(message):
        checkpoint.load_classifier(tmp_path, num_labels=2, kind=wants)


def test_labels_that_do_not_fit(folder, pretrained):
    with refuse(r"its trained classifier has 2 labels, the task has 3; choose the task it was "):
        checkpoint.load_classifier(folder, num_labels=3)
    with refuse(
        r"its classifier orders the labels no, yes, the task yes, no; give the task that order "
        r"\(--labels no,yes\)$"
    ):
        checkpoint.load_classifier(folder, num_labels=2, label_names=["yes", "no"])
    with pytest.raises(ModelError, match=r"^3 labels need as many names, found 1: yes$"):
        checkpoint.load_classifier(pretrained, num_labels=3, label_names=["yes"])


def test_a_pretrained_model_without_its_encoder(pretrained):
    path = pretrained / "model.safetensors"
    kept = {name: tensor for name, tensor in load_file(path).items() if ".2." not in name}
    save_file(kept, path, metadata={"format": "pt"})
    with refuse(r"the weights lack bert.encoder.layer.2.* and 15 more; use a complete checkpoint$"):
        checkpoint.load_classifier(pretrained, num_labels=2)


def test_a_pruned_encoder_without_classifier(tmp_path):
    model = tiny_model(bare=True)
    remove(model, PLAN)
    checkpoint.save(model, tiny_tokenizer(), tmp_path)
    with refuse(r": is a pruned encoder without a classifier; start from one with a classifier$"):
        checkpoint.load_classifier(tmp_path, num_labels=2)


def test_the_tokenizer_of_another_model(tmp_path):
    checkpoint.save(tiny_model(vocab_size=50), tiny_tokenizer(), tmp_path)
    with refuse(r": its tokenizer has 62 tokens, its model 50; use the tokenizer the model was"):
        checkpoint.load_classifier(tmp_path, num_labels=2)
