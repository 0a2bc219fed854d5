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


def test_a_revision(hub):
    assert labels("me/mine")[0] != "label 0"
    for revision in (OLD, "v1"):
        assert labels(f"me/mine@{revision}")[0] == "label 0"
        assert read_config(f"me/mine@{revision}")[0].id2label[0] == "label 0"
        assert len(checkpoint.load_tokenizer(f"me/mine@{revision}")) > 5
    message = "^'me/mine@nowhere' is no folder and cannot be read from the hub"
    with pytest.raises(CheckpointError, match=message):
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


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        (
            "config.json",
            {"auber_removed_heads": {"0": [1]}},
            "^'me/mine' is a pruned model; download it and give the local folder$",
        ),
        (
            "config.json",
            {"quantization_config": {"quant_method": "gptq"}},
            "^'me/mine': the model is quantised .* give the model it was made from$",
        ),
        ("adapter_config.json", {}, "^me/mine: has an adapter beside its weights"),
    ],
)
def test_other_models_of_the_hub_are_refused(hub, file, changes, message):
    path = hub / "snapshots" / NEW / file
    before = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**before, **changes}))
    with pytest.raises(CheckpointError, match=message):
        labels("me/mine")
