"""No pickle is ever loaded: under no name, and through no index."""

from __future__ import annotations

import json
import pickle

import pytest
import torch

import auber
from auber.errors import CheckpointError, RunError
from auber.models import checkpoint
from auber.models.plan import PlanError, PruningPlan
from auber.run import files as run_files
from auber.run.ledger import Ledger
from tests.security.models import RunsWhenLoaded, change_json, save_whole, write_pickle

REMEDY = r"is never loaded; convert it to model.safetensors: .*safe_serialization=True\)$"


@pytest.fixture
def marker(tmp_path):
    return tmp_path / "marker"


@pytest.fixture(autouse=True)
def _nothing_is_unpickled(monkeypatch, marker):
    """Fail if torch.load is called, even where it would have refused."""

    def load(*arguments, **options):
        raise AssertionError("torch.load was called")

    monkeypatch.setattr(torch, "load", load)
    yield
    assert not marker.exists()


def refuse(folder, message):
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load(folder)
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load_classifier(folder, num_labels=2)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pth", "weights.pkl", "last.ckpt"])
def test_weights_that_are_a_pickle(tmp_path, marker, name):
    folder = save_whole(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    write_pickle(folder / name, marker)
    refuse(folder, rf"model: its weights are a pickle \({name}\), which can run code and {REMEDY}")


def test_a_pickle_by_a_safe_name(tmp_path, marker):
    folder = save_whole(tmp_path / "model")
    path = folder / "model.safetensors"
    message = rf"model.safetensors: is a pickle by another name, which can run code and {REMEDY}"
    write_pickle(path, marker)
    refuse(folder, message)
    path.write_bytes(pickle.dumps(RunsWhenLoaded(marker)))
    refuse(folder, message)


def test_a_pickle_beside_the_weights_is_left_alone(tmp_path, marker):
    folder = save_whole(tmp_path / "model")
    for name in ("pytorch_model.bin", "training_args.bin", "adapter_model.bin"):
        write_pickle(folder / name, marker)
    change_json(folder / "config.json", transformers_weights="adapter_model.bin")
    assert type(checkpoint.load(folder)).__name__ == "BertForSequenceClassification"
    assert checkpoint.load_classifier(folder, num_labels=2).is_trained
    (folder / "adapter_config.json").write_text("{}")
    refuse(folder, r"model: has an adapter beside its weights \(adapter_config.json\).* merge it")


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "model.pkl", "../other.safetensors", "/tmp/x.safetensors"]
)
def test_shards_are_safetensors_beside_their_index(tmp_path, marker, name):
    folder = save_whole(tmp_path / "model")
    (folder / "model.safetensors").rename(tmp_path / "other.safetensors")
    write_pickle(folder / "pytorch_model.bin", marker)
    write_pickle(folder / "model.pkl", marker)
    index = {"metadata": {}, "weight_map": {"bert.embeddings.word_embeddings.weight": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    refuse(folder, f"index.json: must name safetensors files beside it, found '{name}'; save or")


def test_public_functions_refuse_it_too(tmp_path, marker):
    folder = save_whole(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    write_pickle(folder / "pytorch_model.bin", marker)
    for call in (auber.load, lambda place: auber.evaluate(place, task="agreement")):
        with pytest.raises(CheckpointError, match=REMEDY):
            call(folder)


def test_records_are_not_unpickled(tmp_path, marker):
    data = pickle.dumps(RunsWhenLoaded(marker))
    (tmp_path / "scores.jsonl").write_bytes(data + b"\n")
    with pytest.raises(RunError, match="scores.jsonl, line 1: not a score .*; remove the line"):
        Ledger(tmp_path / "scores.jsonl")
    (tmp_path / "plan.json").write_bytes(data)
    with pytest.raises(PlanError, match="plan.json: cannot be read"):
        PruningPlan.read(tmp_path / "plan.json")
    for name in ("run.json", "result.json"):
        (tmp_path / name).write_bytes(data)
    with pytest.raises(RunError, match="result.json: cannot be read"):
        run_files.read_result(tmp_path)
