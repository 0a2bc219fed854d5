"""Every way a model folder can be wrong, each refused in one line."""

from __future__ import annotations

import pytest
from safetensors.torch import load_file, save_file

from auber.errors import CheckpointError
from auber.models import checkpoint
from tests.models.checkpoint.made import edit_config
from tests.tiny_models import tiny_model


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
    assert_refused(
        folder, r"config.json: cannot be read \(.*\); it is damaged: save the model again$"
    )


def test_config_that_is_no_configuration(folder):
    (folder / "config.json").write_text("[1]")
    assert_refused(folder, r"config.json: must be a JSON object, found list; save the model again$")
    (folder / "config.json").write_text('{"model_type": "bert", "num_hidden_layers": "three"}')
    assert_refused(folder, r"config.json: is no valid bert configuration \(")


@pytest.mark.parametrize("model_type", ["gpt2", "albert", None, ["bert"]])
def test_foreign_model_types(folder, model_type):
    edit_config(folder, model_type=model_type)
    assert_refused(
        folder,
        r"config.json: A model of type .* cannot be pruned.*; use one of: bert, camembert, .*distilbert",
    )


@pytest.mark.parametrize("architectures", [["BertForMaskedLM"], [], None])
def test_foreign_architectures(folder, architectures):
    edit_config(folder, architectures=architectures)
    known = " or ".join(
        f"BertFor{ending}"
        for ending in ("SequenceClassification", "TokenClassification", "QuestionAnswering")
    )
    message = rf"its architecture must be BertModel or {known}, found (BertForMaskedLM|None)$"
    assert_refused(folder, message)
    edit_config(folder, auber_removed_heads=None)
    assert_refused(folder, message)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (
            {"0": [9]},
            r"layer 0: its heads are numbered 0 to 3, the plan removes head 9; correct the plan$",
        ),
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
        checkpoint.load_classifier(folder, num_labels=2)


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
    assert_refused(
        folder,
        r"the weights lack bert.encoder.layer.1.attention.self.key.weight; save the model again$",
    )
    if pruned:
        tensors["bert.encoder.layer.1.attention.self.key.weight"] = weight
        tensors["extra"] = weight.clone()
        save_file(tensors, path, metadata={"format": "pt"})
        assert_refused(
            folder,
            r"the weights hold extra, which BertForSequenceClassification does not have; save",
        )


def test_no_tokenizer(folder):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(
        CheckpointError, match=r": has no tokenizer files; save the tokenizer into the folder$"
    ):
        checkpoint.load_tokenizer(folder)
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(
        CheckpointError, match=r": its tokenizer cannot be loaded \(.*\); save one into the folder$"
    ):
        checkpoint.load_tokenizer(folder)
