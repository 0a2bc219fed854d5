"""Models that transformers 4.57.6 pruned and saved compute here what they computed there.

`fixtures/v4/make.py` made them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import auber
from auber.errors import CheckpointError
from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.models.legacy import import_model
from auber.models.plan import PruningPlan
from auber.models.remote_code import modeling_auber
from tests.small import small_config

FIXTURES = Path(__file__).parents[1] / "fixtures" / "v4"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text())
CLASSES = {"bert": "BertForSequenceClassification", "roberta": "RobertaForSequenceClassification"}


@torch.no_grad()
def assert_computes_the_same(model, name):
    batch = {key: torch.tensor(rows) for key, rows in EXPECTED["input"].items()}
    torch.testing.assert_close(
        model.eval()(**batch).logits.double(),
        torch.tensor(EXPECTED["logits"][name], dtype=torch.float64),
        atol=1e-5,
        rtol=0,
    )


@pytest.fixture
def old(tmp_path):
    """A copy of BERT's folder, to spoil."""
    return Path(shutil.copytree(FIXTURES / "bert", tmp_path / "old"))


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_an_imported_model_computes_what_it_computed_in_transformers_4(name, tmp_path):
    assert_computes_the_same(checkpoint.load(FIXTURES / name), name)  # the old folder, as it is
    imported = import_model(FIXTURES / name, tmp_path / "new")
    assert imported.plan == PruningPlan.from_json(EXPECTED["removed"])
    assert (imported.architecture, imported.num_heads) == (CLASSES[name], 8)
    assert imported.has_tokenizer == (name == "bert")
    loaded = checkpoint.load(imported.place)
    assert encoder_of(loaded).removed == imported.plan
    assert_computes_the_same(loaded, name)
    assert_computes_the_same(
        getattr(modeling_auber, CLASSES[name]).from_pretrained(imported.place), name
    )
    if imported.has_tokenizer:
        text = "the film is good"
        new, old = (checkpoint.load_tokenizer(place) for place in (imported.place, FIXTURES / name))
        assert new(text).input_ids == old(text).input_ids
        assert new.unk_token_id not in new(text).input_ids
    config = json.loads((imported.place / "config.json").read_text())
    assert "pruned_heads" not in config
    assert config["auber_removed_heads"] == EXPECTED["removed"]


def test_shards_and_the_buffers_of_older_versions(old, tmp_path):
    tensors = load_file(old / "model.safetensors")
    (old / "model.safetensors").unlink()
    tensors["bert.embeddings.position_ids"] = torch.arange(16)[None]
    names = sorted(tensors)
    files = {
        "model-00001-of-00002.safetensors": names[::2],
        "model-00002-of-00002.safetensors": names[1::2],
    }
    for file, held in files.items():
        save_file({name: tensors[name] for name in held}, old / file, metadata={"format": "pt"})
    index = old / "model.safetensors.index.json"
    index.write_text(
        json.dumps({"weight_map": {name: file for file, held in files.items() for name in held}})
    )
    assert_computes_the_same(checkpoint.load(import_model(old, tmp_path / "new").place), "bert")
    (old / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(
        CheckpointError,
        match=r"model-00002-of-00002.safetensors: is damaged \(.*\); save or download",
    ):
        import_model(old, tmp_path / "other")


def test_a_folder_that_needs_no_import(old, tmp_path):
    new = import_model(old, tmp_path / "new").place
    with pytest.raises(
        CheckpointError, match=r"new: was saved by auber and needs no import; load it as it is$"
    ):
        import_model(new, tmp_path / "other")
    config = json.loads((old / "config.json").read_text())
    (old / "config.json").write_text(json.dumps({**config, "pruned_heads": {}}))
    message = "old: its config.json must record pruned_heads, as transformers 4 does, found none; a"
    with pytest.raises(CheckpointError, match=message):
        import_model(old, tmp_path / "other")


def test_heads_that_the_config_does_not_record_name_the_import(old):
    config = json.loads((old / "config.json").read_text())
    del config["pruned_heads"]
    (old / "config.json").write_text(json.dumps(config))
    message = (
        r"old: .*weight.* must have the shapes that config.json records, found others; if "
        r"transformers 4 pruned heads, restore pruned_heads in config.json and run 'auber import'"
    )
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load(old)


def test_a_pruned_model_of_transformers_4_can_be_pruned_further(old):
    rows = [{"text": f"the film is good {row}", "label": str(row % 3)} for row in range(30)]
    config = small_config(first__when="never", last__epochs=0)
    pruned = auber.prune(
        old, task=auber.make_task(rows, rows), method="fisher", keep=0.45, config=config
    )
    assert pruned.result["remaining"]["multiply_adds"] <= 0.45


def test_the_command(run_auber, tmp_path, old):
    new = tmp_path / "new"
    code, out, err = run_auber("import", FIXTURES / "bert", "--out", new, "--quiet")
    assert (code, err) == (0, "")
    assert out == f"{new}: BertForSequenceClassification, 5 of 8 heads removed\n"
    before = {path.name: path.read_bytes() for path in old.iterdir()}
    code, _, err = run_auber("import", old, "--out", old)
    message = "must be a new or an empty folder; choose another folder for --out"
    assert (code, err) == (2, f"auber: {old}: {message}\n")
    assert {path.name: path.read_bytes() for path in old.iterdir()} == before
    code, out, _ = run_auber("import", FIXTURES / "roberta", "--out", tmp_path / "other", "--json")
    assert json.loads(out) == {
        "out": str(tmp_path / "other"),
        "architecture": "RobertaForSequenceClassification",
        "heads": {"removed": 5, "total": 8},
        "plan": {"heads": EXPECTED["removed"], "neurons": {}},
        "tokenizer": False,
    }
    code, out, _ = run_auber("import", FIXTURES / "roberta", "--out", tmp_path / "third")
    assert out.splitlines()[1].startswith("the folder has no tokenizer; save the one the model was")
