"""The start of a run: a classifier that is drawn by seed, or the trained one that is there."""

from __future__ import annotations

import logging
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from auber.data.task_types import TASK_TYPES
from auber.errors import CheckpointError, ModelError
from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.surgery import masked_heads, remove_heads
from tests.kinds import TOKEN_KINDS
from tests.models.checkpoint.made import PLAN, output
from tests.tiny_models import MODEL_TYPES, random_batch, tiny_model, tiny_tokenizer


def test_a_classifier_is_drawn_by_seed(pretrained, caplog, capfd):
    names = ["no", "maybe", "yes"]
    with caplog.at_level(logging.WARNING, logger="transformers"):
        start = checkpoint.load_start(pretrained, num_labels=3, label_names=names, seed=1)
    assert not caplog.records
    assert "LOAD REPORT" not in capfd.readouterr().err
    assert not start.has_trained_classifier
    assert start.model.config.problem_type == "single_label_classification"
    assert start.model.config.id2label == {0: "no", 1: "maybe", 2: "yes"}
    assert start.model.config.label2id == {"no": 0, "maybe": 1, "yes": 2}
    assert start.tokenizer("good").input_ids == tiny_tokenizer()("good").input_ids
    assert start.model.classifier.weight.shape == (3, 32)
    torch.manual_seed(99)  # whatever happened before
    same = checkpoint.load_start(pretrained, num_labels=3, seed=1).model
    other = checkpoint.load_start(pretrained, num_labels=3, seed=2).model
    assert torch.equal(same.classifier.weight, start.model.classifier.weight)
    assert not torch.equal(other.classifier.weight, start.model.classifier.weight)
    assert torch.equal(
        other.bert.embeddings.word_embeddings.weight,
        start.model.bert.embeddings.word_embeddings.weight,
    )


def test_only_the_load_report_is_silenced(monkeypatch):
    logger = logging.getLogger("transformers.modeling_utils")
    monkeypatch.setattr(logger, "disabled", False)
    monkeypatch.setattr(logger, "level", logging.WARNING)
    logger.manager._clear_cache()
    seen = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())
    logger.addHandler(handler)
    try:
        with checkpoint._no_load_report():
            logger.warning("Bert LOAD REPORT from: here")
            logger.warning("something else")
        logger.warning("Bert LOAD REPORT from: there")
    finally:
        logger.removeHandler(handler)
    assert seen == ["something else", "Bert LOAD REPORT from: there"]


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_family_starts_from_a_bare_encoder(model_type, tmp_path):
    checkpoint.save(tiny_model(model_type, bare=True, dtype="bfloat16"), tiny_tokenizer(), tmp_path)
    start = checkpoint.load_start(tmp_path, num_labels=1, is_regression=True)
    assert start.model.config.problem_type == "regression"
    assert {parameter.dtype for parameter in start.model.parameters()} == {torch.float32}
    assert output(start.model, random_batch(start.model)).shape == (4, 1)


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_a_start_of_tokens_has_a_new_classifier_or_its_own(kind, tmp_path):
    names = ["O", "B-A", "I-A"] if kind == "tokens" else None
    wanted = {"num_labels": 3 if names else 2, "label_names": names, "kind": kind}
    checkpoint.save(tiny_model(bare=True), tiny_tokenizer(), tmp_path / "bare")
    first, again, other = (
        checkpoint.load_start(tmp_path / "bare", **wanted, seed=seed) for seed in (0, 0, 1)
    )
    assert not first.has_trained_classifier
    assert type(first.model).__name__.endswith(TASK_TYPES[kind].ending)
    head = "classifier.weight" if names else "qa_outputs.weight"
    drawn = [start.model.state_dict()[head] for start in (first, again, other)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    if names:
        assert first.model.config.id2label == dict(enumerate(names))
    checkpoint.save(first.model, first.tokenizer, tmp_path / "tuned")
    tuned = checkpoint.load_start(tmp_path / "tuned", **wanted, seed=5)
    assert tuned.has_trained_classifier
    assert torch.equal(tuned.model.state_dict()[head], drawn[0])


def test_a_trained_classifier_is_kept(folder, tmp_path):
    start = checkpoint.load_start(folder, num_labels=2, label_names=["no", "yes"])
    assert start.has_trained_classifier
    assert encoder_of(start.model).removed == PruningPlan(PLAN)
    whole = tiny_model()
    checkpoint.save(whole, tiny_tokenizer(), tmp_path / "whole")
    start = checkpoint.load_start(tmp_path / "whole", num_labels=2, label_names=["no", "yes"])
    assert start.has_trained_classifier
    assert start.model.config.id2label == {0: "no", 1: "yes"}
    batch = random_batch(whole)
    assert torch.equal(output(start.model, batch), output(whole, batch))


@pytest.mark.parametrize(
    ("has", "wants"),
    [(has, wants) for has in TASK_TYPES for wants in TASK_TYPES if has != wants],
    ids=lambda kind: kind,
)
def test_a_classifier_of_another_kind_is_not_taken_for_one_of_this(has, wants, tmp_path):
    checkpoint.save(tiny_model(kind=has), tiny_tokenizer(), tmp_path)
    message = (
        rf"its classifier is one for {has} \(Bert{TASK_TYPES[has].ending}\), the task is of kind {wants} "
        rf"\(\.\.\.{TASK_TYPES[wants].ending}\); start from a model of that kind, or from the encoder without a classifier$"
    )
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load_start(tmp_path, num_labels=2, kind=wants)


def test_labels_that_do_not_fit(folder, pretrained):
    message = r"its trained classifier has 2 labels, the task has 3; choose the task it was trained on, or, to train one, the enc"
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load_start(folder, num_labels=3)
    message = r"its classifier orders the labels no, yes, the task yes, no; give the task that order \(--labels no,yes\)$"
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load_start(folder, num_labels=2, label_names=["yes", "no"])
    with pytest.raises(ModelError, match=r"^3 labels need as many names, found 1: yes$"):
        checkpoint.load_start(pretrained, num_labels=3, label_names=["yes"])


def test_a_start_without_its_encoder(pretrained):
    path = pretrained / "model.safetensors"
    tensors = load_file(path)
    save_file(
        {name: tensor for name, tensor in tensors.items() if ".2." not in name},
        path,
        metadata={"format": "pt"},
    )
    with pytest.raises(
        CheckpointError,
        match=r"the weights lack bert.encoder.layer.2.* and 15 more; use a complete checkpoint$",
    ):
        checkpoint.load_start(pretrained, num_labels=2)


def test_a_pruned_start_without_classifier(tmp_path):
    model = tiny_model(bare=True)
    remove_heads(model, PLAN)
    checkpoint.save(model, tiny_tokenizer(), tmp_path)
    with pytest.raises(
        CheckpointError, match=r": is a pruned encoder without a classifier; start from one with a"
    ):
        checkpoint.load_start(tmp_path, num_labels=2)


def test_a_tokenizer_of_another_model(tmp_path):
    checkpoint.save(tiny_model(vocab_size=50), tiny_tokenizer(), tmp_path)
    with pytest.raises(
        CheckpointError,
        match=r": its tokenizer has 62 tokens, its model 50; use the tokenizer the model was",
    ):
        checkpoint.load_start(tmp_path, num_labels=2)


def test_an_unreachable_hub():
    message = r"^'nobody/nothing' is no folder and cannot be read from the hub \(.*\); give a local folder or check the name$"
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load_start("nobody/nothing", num_labels=2)


@pytest.mark.parametrize(
    "path", ["./nothing", "/nowhere/nothing", "runs/mine/model", "~/nothing", "nothing/"]
)
def test_a_folder_that_is_not_there(path):
    message = f"^{path}: there is no such folder; give the one a model was saved in, or a name on the hub \\(NAME or OWNER/NAME\\)$"
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load_start(path, num_labels=2)


def test_a_start_computes_with_masks_what_its_saved_pruned_form_computes(pretrained, tmp_path):
    model = checkpoint.load_start(pretrained, num_labels=2).model
    batch = random_batch(model)
    with masked_heads(model, PLAN):
        expected = output(model, batch)
    remove_heads(model, PLAN)
    checkpoint.save(model, None, tmp_path / "out")
    shutil.rmtree(pretrained)
    torch.testing.assert_close(
        output(checkpoint.load(tmp_path / "out"), batch), expected, atol=1e-5, rtol=0
    )
