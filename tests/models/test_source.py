"""The configuration of a model and the names of its weight files, all of which may be damaged."""

from __future__ import annotations

import json

import pytest

from auber.errors import CheckpointError
from auber.models import checkpoint
from auber.models.source import read_config
from tests.models.conftest import edit_config


def assert_refused(folder, message):
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load(folder)


def test_no_folder(tmp_path):
    assert_refused(tmp_path / "none", r"none: a model folder is needed, found nothing$")
    (tmp_path / "file").write_text("")
    assert_refused(tmp_path / "file", r"file: a model folder is needed, found a file$")
    assert_refused(tmp_path, r": has no config.json; give the folder a model was saved in$")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, r"cannot be read \(.*\); it is damaged: save the model again$"),
        ("[1]", "must be a JSON object, found list; save the model again$"),
        (
            '{"model_type": "bert", "num_hidden_layers": "three"}',
            r"is no valid bert configuration \(.*\); save the model again$",
        ),
    ],
)
def test_a_damaged_config(folder, text, message):
    (folder / "config.json").write_text(text)
    assert_refused(folder, f"config.json: {message}")


@pytest.mark.parametrize("model_type", ["gpt2", None, ["bert"]])
def test_other_model_types(folder, model_type):
    edit_config(folder, model_type=model_type)
    message = (
        r"config.json: A model of type .* cannot be pruned.*; use one of: bert, camembert, "
        ".*distilbert"
    )
    assert_refused(folder, message)


@pytest.mark.parametrize("architectures", [["BertForMaskedLM"], None])
def test_other_architectures(folder, architectures):
    edit_config(folder, architectures=architectures)
    message = (
        "its architecture must be BertForSequenceClassification or BertForTokenClassification or "
        "BertForQuestionAnswering or BertModel, found (BertForMaskedLM|None)$"
    )
    assert_refused(folder, message)
    edit_config(folder, auber_removed_heads=None)
    assert_refused(folder, message)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"7": [0]}, r"layer 7: the model has layers 0 to 2; correct the plan$"),
        ({"0": "all"}, r"its plan: layer 0: heads must be a list, found str$"),
    ],
)
def test_bad_plans(folder, plan, message):
    edit_config(folder, auber_removed_heads=plan)
    assert_refused(folder, r"config.json: records units that cannot be removed: " + message)


def test_more_layers_than_tensors(folder):
    edit_config(folder, num_hidden_layers=10**6)
    message = r"its config.json has 1000000 layers, its weights hold \d+ tensors in all; save "
    assert_refused(folder, message)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, r"is damaged \('weight_map'\); save or download the model again$"),
        ({"weight_map": {}}, "names no weight files; save or download the model again$"),
    ],
)
def test_a_damaged_index(folder, index, message):
    (folder / "model.safetensors").unlink()
    assert_refused(folder, r": has no model.safetensors; give the folder a model was saved in$")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert_refused(folder, f"index.json: {message}")


@pytest.mark.parametrize("path", ["./none", "runs/mine/model", "~/none", "none/"])
def test_a_path_that_does_not_exist(path):
    message = (
        f"^{path}: there is no such folder; give the one a model was saved in, or a name on the "
        r"hub \(NAME or OWNER/NAME\)$"
    )
    with pytest.raises(CheckpointError, match=message):
        read_config(path)


def test_an_unreachable_hub():
    message = (
        r"^'nobody/nothing' is no folder and cannot be read from the hub \(.*\); give a local "
        "folder or check the name$"
    )
    with pytest.raises(CheckpointError, match=message):
        read_config("nobody/nothing")
