"""Code in a model folder is never run: no option and no file in the folder can request it."""

from __future__ import annotations

import json
import sys
from functools import partial

import pytest

import auber
from auber.errors import CheckpointError
from auber.export.subjects import read_subjects
from auber.models import checkpoint
from auber.models.legacy import import_model
from tests.security.models import change_json, save_with_code
from tests.small import small_config, small_task


@pytest.fixture
def marker(tmp_path):
    return tmp_path / "marker"


@pytest.fixture
def folder(tmp_path, marker):
    return save_with_code(tmp_path / "model", marker)


@pytest.fixture(autouse=True)
def _nothing_ran(marker):
    before = code_from_folders()  # other tests load such code on purpose
    yield
    assert not marker.exists()
    assert code_from_folders() == before


def code_from_folders():
    """Return the modules that transformers has loaded from model folders."""
    return {name for name in sys.modules if name.startswith("transformers_modules")}


def test_loading(folder):
    model = auber.load(folder)
    assert type(model).__module__.startswith("transformers.models.bert")
    assert type(model.config).__name__ == "BertConfig"
    assert type(checkpoint.load_tokenizer(folder)).__module__.startswith("transformers.")
    assert model.config._attn_implementation in ("sdpa", "eager")  # transformers' own choice


def test_pruning_and_evaluating(folder, tmp_path):
    config = small_config(agent__episodes=2)
    pruned = auber.prune(folder, task=small_task(), config=config, out=tmp_path / "run")
    assert type(pruned.model).__module__.startswith("transformers.models.bert")
    auber.evaluate(tmp_path / "run", task=small_task(), config=config)
    saved = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert "evil" not in json.dumps(saved)
    assert not list((tmp_path / "run").rglob("evil.py"))


def test_speed(folder):
    (subject,) = read_subjects((str(folder),), None)
    assert type(subject.config).__name__ == "BertConfig"
    assert type(subject.build()[0]).__module__.startswith("transformers.models.bert")


def test_an_import(folder, tmp_path):
    change_json(folder / "config.json", pruned_heads={})
    with pytest.raises(CheckpointError, match="must record pruned_heads"):
        import_model(folder, tmp_path / "new")


@pytest.mark.parametrize("model_type", ["bert-evil", "llama"])
def test_a_model_type_defined_by_the_code(folder, model_type):
    change_json(folder / "config.json", model_type=model_type)
    message = f"A model of type '{model_type}' cannot be pruned"
    for call in (auber.load, partial(checkpoint.load_classifier, num_labels=2)):
        with pytest.raises(CheckpointError, match=message):
            call(folder)


def test_a_tokenizer_defined_by_the_code(folder):
    change_json(folder / "tokenizer_config.json", tokenizer_class="EvilTokenizer")
    (folder / "tokenizer.json").unlink()
    message = "its tokenizer cannot be loaded|has no tokenizer files"
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load_tokenizer(folder)
