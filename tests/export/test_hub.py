"""A folder to share: it loads as its card says, and pushing it reveals nothing."""

from __future__ import annotations

import json
import re
import sys
from types import SimpleNamespace

import pytest
import torch
import yaml

from auber.data.generated import make_agreement
from auber.errors import CheckpointError, ConfigError
from auber.export import export_model, hub
from auber.models import checkpoint
from auber.models.plan import PruningPlan
from auber.models.remote_code import MODELING_FILE, modeling_auber
from tests.export.models import save_pruned
from tests.export.snippets import own_answers, run_lines
from tests.export.test_source import FINISHED
from tests.small import small_start
from tests.tiny_models import random_batch, tiny_tokenizer

TOKEN = "hf_abcDEF123secret"


class Hub:
    """Stands in for an `HfApi`."""

    def __init__(self, error=None):
        self.error = error
        self.made, self.uploaded = [], []

    def create_repo(self, name, **options):
        self.made.append((name, options))
        return SimpleNamespace(repo_id=f"someone/{name}")

    def upload_folder(self, *, repo_id, folder_path, commit_message):
        if self.error is not None:
            raise self.error
        files = {path.name: path.read_bytes() for path in folder_path.iterdir()}
        self.uploaded.append((repo_id, files, commit_message))
        return SimpleNamespace(repo_url=f"https://huggingface.co/{repo_id}")


@pytest.fixture
def exported(tmp_path):
    return export_model(FINISHED, "hub", out=tmp_path / "out")


def test_the_folder_is_complete_and_loads(exported):
    assert set(exported.files) == {
        "README.md", "config.json", "model.safetensors", MODELING_FILE.name, "tokenizer.json",
        "tokenizer_config.json",
    }  # fmt: skip
    assert exported.check.largest_difference < 1e-6
    original = checkpoint.load(FINISHED / "model")
    batch = random_batch(original)
    batch = {name: tensor % original.config.vocab_size for name, tensor in batch.items()}
    assert len(checkpoint.load_tokenizer(exported.place)) > 5
    cls = modeling_auber.BertForSequenceClassification
    with torch.no_grad():
        for loaded in (checkpoint.load(exported.place), cls.from_pretrained(exported.place).eval()):
            assert torch.equal(loaded(**batch).logits, original(**batch).logits)


@pytest.fixture
def _private_modules(tmp_path, monkeypatch):
    """Copy the code that is allowed to run here, and not into the home folder."""
    place = str(tmp_path / "modules")
    for module in ("transformers.dynamic_module_utils", "transformers.utils.hub"):
        monkeypatch.setattr(f"{module}.HF_MODULES_CACHE", place)
    monkeypatch.setattr(sys, "path", [*sys.path])


def card_of(exported):
    """Return the card, with the folder as the place to load from."""
    card = (exported.place / "README.md").read_text()
    return card.replace("path/to/this/folder", str(exported.place))


@pytest.mark.usefixtures("_private_modules")
def test_the_card_of_a_text_classifier(tmp_path):
    model = save_pruned(tmp_path / "mine")
    classify = run_lines(card_of(export_model(tmp_path / "mine", "hub")))["classify"]
    (answer,) = classify("the film is good")
    with torch.inference_mode():
        logits = model(**tiny_tokenizer()("the film is good", return_tensors="pt")).logits
    assert answer["label"] == ["bad", "good"][int(logits.argmax())]
    assert answer["score"] == pytest.approx(float(logits.softmax(-1).max()), abs=1e-5)


@pytest.mark.usefixtures("_private_modules")
def test_the_card_of_a_tagger(tmp_path):
    model = save_pruned(tmp_path / "mine", kind="tokens", seed=2)
    card = card_of(export_model(tmp_path / "mine", "hub"))
    assert "| 0 | 2 of 4 | 0, 3 | 13 of 48 |\n| 1 | 3 of 4 | 1 | 48 of 48 |\n" in card
    assert yaml.safe_load(card.split("---\n")[1])["pipeline_tag"] == "token-classification"
    assert "(`BertForTokenClassification`) without 6 of 12 attention heads and 36 of 144" in card
    encoded = tiny_tokenizer()("good bad film", return_tensors="pt")
    with torch.inference_mode():
        tags = model(**encoded).logits[0].argmax(-1).tolist()
    names = {model.config.id2label[tag][2:] for tag in tags[1:-1]} - {""}
    groups = run_lines(card)["tag"]("good bad film")
    assert {group["entity_group"] for group in groups} == names


@pytest.mark.usefixtures("_private_modules")
def test_the_card_of_a_model_that_finds_answers(tmp_path):
    model = save_pruned(tmp_path / "mine", kind="spans")
    card = card_of(export_model(tmp_path / "mine", "hub"))
    assert yaml.safe_load(card.split("---\n")[1])["pipeline_tag"] == "question-answering"
    found = run_lines(card)
    assert type(found["model"]).__module__.startswith("transformers_modules.")  # the folder's code
    assert found["answers"] == own_answers(model, found)


def test_the_card_of_an_even_model_needs_no_code(tmp_path):
    plan = PruningPlan(neurons={layer: range(layer, layer + 8) for layer in range(3)})
    model = save_pruned(tmp_path / "mine", plan)
    exported = export_model(tmp_path / "mine", "hub")
    assert MODELING_FILE.name not in exported.files
    card = card_of(exported)
    assert "transformers loads this folder like any other" in card
    assert "trust_remote_code" not in card
    assert MODELING_FILE.name not in card
    (answer,) = run_lines(card)["classify"]("the film is good")
    with torch.inference_mode():
        logits = model(**tiny_tokenizer()("the film is good", return_tensors="pt")).logits
    assert answer["score"] == pytest.approx(float(logits.softmax(-1).max()), abs=1e-5)


def test_an_unpruned_model_is_refused(tmp_path):
    save_pruned(tmp_path / "whole", {})
    message = "^whole: --to hub is for pruned models, nothing is removed from this one; push"
    with pytest.raises(ConfigError, match=message):
        export_model(tmp_path / "whole", "hub")


# Push


def test_a_pushed_model_is_private_and_its_card_names_it(exported):
    api = Hub()
    assert hub.push(exported, "pruned", api=api) == "https://huggingface.co/someone/pruned"
    assert api.made == [("pruned", {"private": True, "exist_ok": True})]
    ((name, files, message),) = api.uploaded
    assert (name, message) == ("someone/pruned", "finished, pruned by auber")
    assert files.keys() == exported.files.keys()
    assert b'model="someone/pruned", trust_remote_code=True' in files["README.md"]


@pytest.mark.parametrize("labels", [True, False])
def test_neither_rows_nor_local_paths_are_uploaded(tmp_path, labels, run_auber):
    """The command in the card has the last part of each path, and no folders."""
    home = tmp_path / "home-of-somebody"
    checkpoint.save(*small_start(), home / "start")
    rows = make_agreement(0, 130, 20).train
    (home / "mine.csv").write_text(
        "text,label\n" + "".join(f'"{text}",{row % 2}\n' for row, text in enumerate(rows.first))
    )
    words = ["--texts", home / "mine.csv"]
    if labels:
        words = ["--train", home / "mine.csv", "--set", "first.require_learned=false"]
    code, _, err = run_auber(
        *("prune", "--model", home / "start", *words, "--keep", "0.6", "--set", "last.epochs=1"),
        *("--set", "max_length=24", "--out", home / "run"),
    )
    assert code == 0, err
    exported = export_model(home / "run", "hub", out=home / "shared")
    api = Hub()
    hub.push(exported, "pruned", api=api)
    ((_, files, message),) = api.uploaded
    assert set(files) <= {
        "README.md", "config.json", "model.safetensors", MODELING_FILE.name, "tokenizer.json",
        "tokenizer_config.json",
    }  # fmt: skip
    for name, content in {**files, "message": message.encode()}.items():
        assert b"home-of-somebody" not in content, name
        assert not any(text.encode() in content for text in rows.first), name


def test_a_push_that_fails_keeps_the_folder_and_hides_the_token(exported):
    error = f"401 for {TOKEN}:\n\n  no licence {'x' * 400}\nAuthorization: Bearer secret"
    short = f"401 for {TOKEN}\nAuthorization: Bearer {TOKEN}"
    for text, reason in (
        (error, r"401 for hf_\.\.\.: no licence x+"),
        (short, r"401 for hf_\.\.\. Authorization: Bearer hf_\.\.\."),
    ):
        message = (
            rf"^pruned: cannot be pushed \({reason}\); log in with 'hf auth login' and try again, "
            "the folder stays in .*out$"
        )
        with pytest.raises(CheckpointError, match=message) as caught:
            hub.push(exported, "pruned", api=Hub(RuntimeError(text)))
        assert len(str(caught.value)) < 600
        assert "secret" not in str(caught.value)
        assert caught.value.__suppress_context__
        assert caught.value.__cause__ is None
    assert (exported.place / "README.md").is_file()


def test_a_name_the_hub_refuses_is_found_before_anything_is_written(run_auber, tmp_path):
    out = tmp_path / "out"
    code, _, err = run_auber("export", FINISHED, "--to", "hub", "--push", "a/b/c", "--out", out)
    assert code == 2
    assert re.match(r"auber: --push must be NAME or OWNER/NAME, found 'a/b/c' \(.*\)\n$", err)
    assert not out.exists()


def test_the_command(run_auber, tmp_path, monkeypatch):
    api = Hub()
    monkeypatch.setattr("huggingface_hub.HfApi", lambda **options: api)
    options = ["export", FINISHED, "--to", "hub", "--push", "me/pruned", "--out"]
    code, out, _ = run_auber(*options, tmp_path / "one")
    assert code == 0
    assert out.endswith("\npushed: https://huggingface.co/someone/me/pruned\n")
    _, as_json, _ = run_auber(*options, tmp_path / "two", "--json")
    assert json.loads(as_json)["pushed"] == "https://huggingface.co/someone/me/pruned"
