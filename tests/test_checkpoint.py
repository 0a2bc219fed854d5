"""Model folders: exact round trips, and every way a folder can be wrong."""

from __future__ import annotations

import json
import logging
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from auber import checkpoint
from auber.encoders import encoder_of
from auber.errors import CheckpointError, ModelError
from auber.kinds import KINDS
from auber.outputs import OUTPUTS
from auber.plan import PruningPlan
from auber.surgery import masked_heads, remove_heads
from tests.kinds import TOKEN_KINDS
from tests.models import HEADS, MODEL_TYPES, random_batch, tiny_model, tiny_tokenizer

PLAN = {0: [1], 2: [0, 2, 3]}


def output(model, batch):
    with torch.no_grad():
        return model(**batch)[0]


def edit_config(folder, **changes):
    path = folder / "config.json"
    data = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in data.items() if value is not None}))


@pytest.fixture
def folder(tmp_path):
    """A pruned tiny BERT with its tokenizer."""
    model = tiny_model(num_labels=2, id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1})
    remove_heads(model, PLAN)
    checkpoint.save(model, tiny_tokenizer(), tmp_path / "model")
    return tmp_path / "model"


# Round trips


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


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_a_start_of_tokens_has_a_new_classifier_or_its_own(kind, tmp_path):
    names = ["O", "B-A", "I-A"] if kind == "tokens" else None
    wanted = {"num_labels": 3 if names else 2, "label_names": names, "kind": kind}
    checkpoint.save(tiny_model(bare=True), tiny_tokenizer(), tmp_path / "bare")
    first, again, other = (checkpoint.load_start(tmp_path / "bare", **wanted, seed=seed) for seed in (0, 0, 1))
    assert not first.has_trained_classifier
    assert type(first.model).__name__.endswith(KINDS[kind].ending)
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


@pytest.mark.parametrize(
    ("has", "wants"), [(has, wants) for has in KINDS for wants in KINDS if has != wants], ids=lambda kind: kind
)
def test_a_classifier_of_another_kind_is_not_taken_for_one_of_this(has, wants, tmp_path):
    checkpoint.save(tiny_model(kind=has), tiny_tokenizer(), tmp_path)
    message = (
        rf"its classifier is one for {has} \(Bert{KINDS[has].ending}\), the task is of kind {wants} "
        rf"\(\.\.\.{KINDS[wants].ending}\); start from a model of that kind, or from the encoder without a classifier$"
    )
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load_start(tmp_path, num_labels=2, kind=wants)


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
    if "token_type_ids" in batch:  # the model then reads its own buffer of zeros, which is in no file
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
    checkpoint.load_start(folder, num_labels=2)
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


def test_the_digest_notices_every_changed_bit_and_every_swap():
    model = tiny_model("bert")
    digest = checkpoint.weights_digest(model)
    weight = model.classifier.weight.data
    bits = weight.view(torch.int32)
    for place in (0, 5, 31):
        for bit in (0, 11, 31):
            bits.view(-1)[place] ^= torch.tensor(1, dtype=torch.int32) << bit
            assert checkpoint.weights_digest(model) != digest
            bits.view(-1)[place] ^= torch.tensor(1, dtype=torch.int32) << bit
    assert checkpoint.weights_digest(model) == digest
    weight[0, [3, 4]] = weight[0, [4, 3]]
    assert checkpoint.weights_digest(model) != digest


@pytest.mark.gpu
def test_the_digest_is_the_same_on_a_gpu():
    model = tiny_model("bert")
    assert checkpoint.weights_digest(model) == checkpoint.weights_digest(model.cuda())


def test_the_digest_tells_models_apart():
    model = tiny_model("mpnet")
    digest = checkpoint.weights_digest(model)
    assert digest == checkpoint.weights_digest(tiny_model("mpnet"))
    assert digest != checkpoint.weights_digest(tiny_model("mpnet", seed=1))
    assert digest != checkpoint.weights_digest(tiny_model("mpnet").to(torch.bfloat16))
    # equal tensors that belong to different heads read different columns of MPNet's bias
    first, second = tiny_model("mpnet"), tiny_model("mpnet")
    for twin in (first, second):
        for parameter in twin.parameters():
            torch.nn.init.ones_(parameter)
    remove_heads(first, {0: [0]})
    remove_heads(second, {0: [1]})
    assert checkpoint.weights_digest(first) != checkpoint.weights_digest(second)


# Writing


def test_saving_replaces_a_model_folder_as_a_whole(folder):
    (folder / "left.txt").write_text("over")
    checkpoint.save(tiny_model(seed=1), None, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    mask = os.umask(0)
    os.umask(mask)
    assert folder.stat().st_mode & 0o777 == 0o777 & ~mask


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_save_that_fails_leaves_the_old_model(folder, monkeypatch, error):
    before = checkpoint.weights_digest(checkpoint.load(folder))
    tokenizer = tiny_tokenizer()

    def fail(*_):
        raise error

    monkeypatch.setattr(tokenizer, "save_pretrained", fail)
    expected = CheckpointError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected, match="cannot be written .disk full.$" if expected is CheckpointError else None):
        checkpoint.save(tiny_model(seed=1), tokenizer, folder)
    assert checkpoint.weights_digest(checkpoint.load(folder)) == before
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_folder_that_cannot_take_the_place_is_put_back(folder, monkeypatch):
    from pathlib import Path

    rename = Path.rename

    def fail_for_the_new(self, target):
        if self.name == "new":
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_for_the_new)
    with pytest.raises(CheckpointError, match=r"cannot be written \(no\)$"):
        checkpoint.save(tiny_model(seed=1), None, folder)
    assert encoder_of(checkpoint.load(folder)).removed == PruningPlan(PLAN)


def test_a_folder_of_something_else_is_not_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(
        CheckpointError, match=r"is there and holds something else than a model; choose another folder$"
    ):
        checkpoint.save(tiny_model(), None, tmp_path)
    with pytest.raises(CheckpointError, match=r"is there and is not a folder; choose another name$"):
        checkpoint.save(tiny_model(), None, tmp_path / "thesis.tex")
    with pytest.raises(CheckpointError, match=r"cannot be written"):
        checkpoint.save(tiny_model(), None, tmp_path / "thesis.tex" / "model")


def test_a_model_with_another_head_is_not_saved(tmp_path):
    from transformers import BertForMaskedLM

    from tests.models import tiny_config

    with pytest.raises(
        ModelError, match=r"^A bare encoder or one of \.\.\.ForSeq.*Answering can be saved, found BertForMask"
    ):
        checkpoint.save(BertForMaskedLM(tiny_config("bert")), None, tmp_path)


# What can be wrong with a folder


def assert_refused(folder, message):
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load(folder)


def test_no_folder(tmp_path):
    assert_refused(tmp_path / "none", r"none: a model folder is needed, found nothing$")
    (tmp_path / "file").write_text("")
    assert_refused(tmp_path / "file", r"file: a model folder is needed, found a file$")
    assert_refused(tmp_path, r": has no config.json; give the folder a model was saved in$")


@pytest.mark.parametrize("text", ["{", "\x00", "[" * 100_000])
def test_config_that_is_not_json(folder, text):
    (folder / "config.json").write_text(text)
    assert_refused(folder, r"config.json: cannot be read as JSON \(.*\); save the model again$")


def test_config_that_is_no_configuration(folder):
    (folder / "config.json").write_text("[1]")
    assert_refused(folder, r"config.json: must be a JSON object, found list; save the model again$")
    (folder / "config.json").write_text('{"model_type": "bert", "num_hidden_layers": "three"}')
    assert_refused(folder, r"config.json: is no valid bert configuration \(")


@pytest.mark.parametrize("model_type", ["gpt2", "albert", None, ["bert"]])
def test_foreign_model_types(folder, model_type):
    edit_config(folder, model_type=model_type)
    assert_refused(
        folder, r"config.json: A model of type .* cannot be pruned.*; use one of: bert, camembert, .*distilbert"
    )


@pytest.mark.parametrize("architectures", [["BertForMaskedLM"], [], None])
def test_foreign_architectures(folder, architectures):
    edit_config(folder, architectures=architectures)
    known = " or ".join(
        f"BertFor{ending}" for ending in ("SequenceClassification", "TokenClassification", "QuestionAnswering")
    )
    message = rf"its architecture must be BertModel or {known}, found (BertForMaskedLM|None)$"
    assert_refused(folder, message)
    edit_config(folder, auber_removed_heads=None)
    assert_refused(folder, message)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"0": [9]}, r"layer 0: its heads are numbered 0 to 3, the plan removes head 9; correct the plan$"),
        ({"7": [0]}, r"layer 7: the model has layers 0 to 2; correct the plan$"),
        ({"0": "all"}, r"auber_removed_heads: layer 0: heads must be a list, found str$"),
        ([1], r"auber_removed_heads: a plan is an object of layer: \[heads\], found list$"),
    ],
)
def test_bad_plans_in_the_config(folder, plan, message):
    edit_config(folder, auber_removed_heads=plan)
    assert_refused(folder, r"config.json: records heads that cannot be removed: " + message)


def test_no_weights_or_a_pickle(folder):
    (folder / "model.safetensors").unlink()
    assert_refused(folder, r": has no model.safetensors; give the folder a model was saved in$")
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n.")
    message = r"its weights are a pickle \(pytorch_model.bin\), which can run code and is never loaded; convert it to model.safet"
    assert_refused(folder, message)
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load_start(folder, num_labels=2)


@pytest.mark.parametrize("pruned", [True, False])
@pytest.mark.parametrize("size", [0, 5, 2000])
def test_truncated_weights(folder, size, pruned):
    if not pruned:
        checkpoint.save(tiny_model(), None, folder)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    assert_refused(folder, r"(model.safetensors: is damaged|cannot be loaded) \(.*\)")


@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        (
            {"0": [1, 2]},
            r"the weights do not fit the recorded heads: .* must be \(.*\), found \(.*\); restore auber_removed_heads",
        ),
        ({}, r"cannot be loaded \("),
    ],
)
def test_weights_that_do_not_fit_the_recorded_heads(folder, recorded, message):
    edit_config(folder, auber_removed_heads=recorded)
    assert_refused(folder, message)


@pytest.mark.parametrize("pruned", [True, False])
def test_missing_and_foreign_tensors(folder, pruned):
    if not pruned:
        checkpoint.save(tiny_model(), None, folder)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    weight = tensors.pop("bert.encoder.layer.1.attention.self.key.weight")
    save_file(tensors, path, metadata={"format": "pt"})
    assert_refused(folder, r"the weights lack bert.encoder.layer.1.attention.self.key.weight; save the model again$")
    if pruned:
        tensors["bert.encoder.layer.1.attention.self.key.weight"] = weight
        tensors["extra"] = weight.clone()
        save_file(tensors, path, metadata={"format": "pt"})
        assert_refused(folder, r"the weights hold extra, which a BertForSequenceClassification has not$")


def test_no_tokenizer(folder):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(CheckpointError, match=r": has no tokenizer files; save the tokenizer into the folder$"):
        checkpoint.load_tokenizer(folder)
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError, match=r": its tokenizer cannot be loaded \(.*\); save one into the folder$"):
        checkpoint.load_tokenizer(folder)


# The start of a run


@pytest.fixture
def pretrained(tmp_path):
    """A folder with a bare encoder and a tokenizer."""
    checkpoint.save(tiny_model(bare=True), tiny_tokenizer(), tmp_path / "pretrained")
    return tmp_path / "pretrained"


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
    assert torch.equal(other.bert.embeddings.word_embeddings.weight, start.model.bert.embeddings.word_embeddings.weight)


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


def test_labels_that_do_not_fit(folder, pretrained):
    message = (
        r"its trained classifier has 2 labels, the task has 3; choose the task it was trained on, or start from the enc"
    )
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load_start(folder, num_labels=3)
    message = r"its classifier orders the labels no, yes, the task yes, no; give the task that order$"
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load_start(folder, num_labels=2, label_names=["yes", "no"])
    with pytest.raises(ModelError, match=r"^3 labels need as many names, found 1: yes$"):
        checkpoint.load_start(pretrained, num_labels=3, label_names=["yes"])


def test_a_start_without_its_encoder(pretrained):
    path = pretrained / "model.safetensors"
    tensors = load_file(path)
    save_file({name: tensor for name, tensor in tensors.items() if ".2." not in name}, path, metadata={"format": "pt"})
    with pytest.raises(
        CheckpointError, match=r"the weights lack bert.encoder.layer.2.* and 15 more; use a complete checkpoint$"
    ):
        checkpoint.load_start(pretrained, num_labels=2)


def test_a_pruned_start_without_classifier(tmp_path):
    model = tiny_model(bare=True)
    remove_heads(model, PLAN)
    checkpoint.save(model, tiny_tokenizer(), tmp_path)
    with pytest.raises(CheckpointError, match=r": is a pruned encoder without a classifier; start from one with a"):
        checkpoint.load_start(tmp_path, num_labels=2)


def test_a_tokenizer_of_another_model(tmp_path):
    checkpoint.save(tiny_model(vocab_size=50), tiny_tokenizer(), tmp_path)
    with pytest.raises(
        CheckpointError, match=r": its tokenizer has 62 tokens, its model 50; use the tokenizer the model was"
    ):
        checkpoint.load_start(tmp_path, num_labels=2)


def test_an_unreachable_hub():
    message = (
        r"^'nobody/nothing' is no folder and cannot be read from the hub \(.*\); give a local folder or check the name$"
    )
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load_start("nobody/nothing", num_labels=2)


def test_a_start_computes_with_masks_what_its_saved_pruned_form_computes(pretrained, tmp_path):
    model = checkpoint.load_start(pretrained, num_labels=2).model
    batch = random_batch(model)
    with masked_heads(model, PLAN):
        expected = output(model, batch)
    remove_heads(model, PLAN)
    checkpoint.save(model, None, tmp_path / "out")
    shutil.rmtree(pretrained)
    torch.testing.assert_close(output(checkpoint.load(tmp_path / "out"), batch), expected, atol=1e-5, rtol=0)
