"""Models on the Hub have revisions and are checked like folders. The Hub is a local cache."""

from __future__ import annotations

import json
import shutil

import huggingface_hub.constants
import pytest
import torch

from auber.errors import CheckpointError
from auber.models import checkpoint
from auber.models.source import HubName, read_config
from tests.security.models import change_json, save_whole, save_with_code, write_pickle

OLD, NEW = "0" * 40, "1" * 40


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A model `me/mine` with two commits, of which the older one names its labels."""
    cache = tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("transformers.utils.hub.constants.HF_HUB_CACHE", str(cache), raising=False)
    place = cache / "models--me--mine"
    for commit in (OLD, NEW):
        save_whole(place / "snapshots" / commit)
    names = {str(index): f"label {index}" for index in range(2)}
    change_json(place / "snapshots" / OLD / "config.json", id2label=names, label2id={})
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(NEW)
    (place / "refs" / "v1").write_text(OLD)
    return place


def labels(source):
    return checkpoint.load_classifier(source, num_labels=2).model.config.id2label


@pytest.mark.parametrize("revision", [OLD, "v1"])
def test_a_revision(hub, revision):
    assert labels("me/mine")[0] != "label 0"
    assert labels(f"me/mine@{revision}")[0] == "label 0"
    assert read_config(f"me/mine@{revision}")[0].id2label[0] == "label 0"
    assert len(checkpoint.load_tokenizer(f"me/mine@{revision}")) > 5


def test_a_revision_that_is_not_there(hub):
    with pytest.raises(
        CheckpointError, match="^'me/mine@nowhere' is no folder and cannot be read from the hub"
    ):
        labels("me/mine@nowhere")


def test_the_syntax_of_a_revision(tmp_path):
    assert HubName.of("bert") == ("bert", "main")
    assert HubName.of("me/mine@") == ("me/mine", "main")
    assert HubName.of("me/mine@v1") == ("me/mine", "v1")
    folder = save_whole(tmp_path / "mine@home")
    assert labels(str(folder))
    assert len(checkpoint.load_tokenizer(folder)) > 5


@pytest.mark.parametrize("name", ["pytorch_model.bin", "../../blobs/x.safetensors"])
def test_shards_on_the_hub(hub, tmp_path, monkeypatch, name):
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("torch.load was called"))
    folder = hub / "snapshots" / NEW
    (folder / "model.safetensors").unlink()
    write_pickle(folder / "pytorch_model.bin", tmp_path / "marker")
    index = {"metadata": {}, "weight_map": {"bert.pooler.dense.weight": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="must name safetensors files beside it, found"):
        labels("me/mine")
    assert not (tmp_path / "marker").exists()


def test_code_on_the_hub(hub, tmp_path):
    shutil.rmtree(hub / "snapshots" / NEW)
    save_with_code(hub / "snapshots" / NEW, tmp_path / "marker")
    model = checkpoint.load_classifier("me/mine", num_labels=2).model
    assert type(model).__module__.startswith("transformers.models.bert")
    assert not (tmp_path / "marker").exists()


def test_pruned_and_quantised_models_of_the_hub(hub):
    path = hub / "snapshots" / NEW / "config.json"
    before = path.read_text()
    change_json(path, auber_removed_heads={"0": [1]})
    with pytest.raises(
        CheckpointError,
        match="^'me/mine' is a pruned model; download it and give the local folder$",
    ):
        labels("me/mine")
    path.write_text(before)
    change_json(path, quantization_config={"quant_method": "gptq"})
    with pytest.raises(
        CheckpointError,
        match="^'me/mine': the model is quantised .* give the model it was made from$",
    ):
        labels("me/mine")


def test_an_adapter_on_the_hub(hub):
    (hub / "snapshots" / NEW / "adapter_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="^me/mine: has an adapter beside its weights"):
        labels("me/mine")
