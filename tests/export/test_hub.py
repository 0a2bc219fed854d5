"""A folder to share: what its card says is so, what it holds loads, and pushing it gives nothing away."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import pytest
import torch
import yaml

import auber
from auber.errors import CheckpointError, ConfigError
from auber.export import export_model, hub
from auber.export.card import accuracy_interval, write_card
from auber.export.source import open_source
from auber.models import checkpoint
from auber.models.remote_code import MODELING_FILE, modeling_auber
from tests.export.models import save_pruned
from tests.export.snippets import own_answers, run_lines
from tests.kinds import small_kind_task
from tests.small import small_config, small_start, small_task

TOKEN = "hf_abcDEF123secret"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run that removed three heads."""
    folder = tmp_path_factory.mktemp("runs") / "mine"
    auber.prune(
        *small_start(),
        task=small_task(),
        method="random",
        heads=3,
        config=small_config(),
        out=folder,
    )
    return folder


class Hub:
    """Stands in for an `HfApi`."""

    def __init__(self, error: Exception | None = None) -> None:
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


def test_the_folder_holds_all_its_readers_need(run, tmp_path):
    exported = export_model(run, "hub", out=tmp_path / "out")
    assert set(exported.files) == {
        "README.md", "config.json", "heads.svg", "model.safetensors", MODELING_FILE.name, "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert exported.largest_difference < 1e-6
    original, tokenizer = checkpoint.load(run / "model"), checkpoint.load_tokenizer(exported.place)
    batch = tokenizer(list(small_task().dev.first[:5]), padding=True, return_tensors="pt")
    with torch.no_grad():
        for loaded in (
            checkpoint.load(exported.place),
            modeling_auber.BertForSequenceClassification.from_pretrained(exported.place).eval(),
        ):
            assert torch.equal(loaded(**batch).logits, original(**batch).logits)


def test_the_card_says_what_the_run_found(run, tmp_path):
    exported = export_model(run, "hub", out=tmp_path / "out")
    card, result = (
        (exported.place / "README.md").read_text(),
        json.loads((run / "result.json").read_text()),
    )
    _, front, text = card.split("---\n", 2)
    assert yaml.safe_load(front) == {
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["auber", "attention-head-pruning", "bert"],
        "metrics": ["accuracy"],
    }
    assert text.startswith("\n# mine\n")
    assert "without 3 of its 12 attention heads" in text
    low, high = accuracy_interval(result["dev"]["score"], 24)
    assert f"| dev accuracy | {100 * result['dev']['score']:.2f} on 24 rows |" in text
    assert f"| 95 % interval | {100 * low:.2f} to {100 * high:.2f} (Wilson, over dev rows;" in text
    for layer in range(3):
        gone = result["plan"].get(str(layer), [])
        assert f"| {layer} | {4 - len(gone)} of 4 | {', '.join(map(str, gone)) or 'none'} |" in text
    assert (
        f"24 dev, cut to {result['config']['max_length']} tokens, content hash `{result['data']}`"
        in text
    )
    assert f"torch {torch.__version__}" in text
    assert f"{len(MODELING_FILE.read_text().splitlines())} lines" in text
    assert 'model="path/to/this/folder", trust_remote_code=True' in text
    assert str(run) not in card
    assert "None" not in card


def test_the_picture_shows_each_head(run, tmp_path):
    exported = export_model(run, "hub", out=tmp_path / "out")
    removed = exported.source.encoder.removed
    picture = ElementTree.parse(exported.place / "heads.svg").getroot()
    titles = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == [
        f"layer {layer}, head {head}: {'removed' if head in removed.removed(layer) else 'present'}"
        for layer in range(3)
        for head in range(4)
    ]
    assert picture.get("aria-label") == "3 of 12 heads removed; a row a layer, a column a head"


@pytest.fixture
def _private_modules(tmp_path, monkeypatch):
    """Code that is allowed to run is copied here, and not into the home folder."""
    place = str(tmp_path / "modules")
    for module in ("transformers.dynamic_module_utils", "transformers.utils.hub"):
        monkeypatch.setattr(f"{module}.HF_MODULES_CACHE", place)
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.usefixtures("_private_modules")
def test_the_card_of_a_tagger(tmp_path):
    task = small_kind_task("tokens")
    start = small_start(kind="tokens", num_labels=5, id2label=dict(enumerate(task.label_names)))
    auber.prune(
        *start, task=task, method="random", heads=3, config=small_config(), out=tmp_path / "mine"
    )
    exported = export_model(tmp_path / "mine", "hub")
    assert exported.largest_difference < 1e-6
    card = (exported.place / "README.md").read_text()
    _, front, text = card.split("---\n", 2)
    assert yaml.safe_load(front) == {
        "library_name": "transformers",
        "pipeline_tag": "token-classification",
        "tags": ["auber", "attention-head-pruning", "bert"],
        "metrics": ["f1"],
    }
    result = json.loads((tmp_path / "mine" / "result.json").read_text())
    assert (
        "A tagger of words (`BertForTokenClassification`) without 3 of its 12 attention heads"
        in text
    )
    assert f"| dev entity_f1 | {100 * result['dev']['score']:.2f} on 20 rows |" in text
    assert "| 95 % interval | unknown:" in text
    assert "The same flag goes with `AutoModelForTokenClassification.from_pretrained`" in text
    assert "None" not in card

    found = run_lines(text.replace('model="path/to/this/folder"', f'model="{exported.place}"'))
    model, tokenizer = checkpoint.load(exported.place), checkpoint.load_tokenizer(exported.place)
    words = task.dev.words[0]
    encoded = tokenizer(" ".join(words), return_tensors="pt")
    with torch.inference_mode():
        tags = model(**encoded).logits[0].argmax(-1).tolist()
    # as many groups as the tags of the words make; the pipeline leaves the outside out
    expected = [model.config.id2label[tag] for tag in tags[1:-1]]
    groups = found["tag"](" ".join(words))
    assert {group["entity_group"] for group in groups} == {
        tag.removeprefix("B-").removeprefix("I-") for tag in expected
    } - {"O"}


@pytest.mark.usefixtures("_private_modules")
def test_the_card_of_a_model_that_finds_answers(tmp_path):
    model = save_pruned(tmp_path / "mine", kind="spans")
    exported = export_model(tmp_path / "mine", "hub")
    card = (exported.place / "README.md").read_text()
    assert yaml.safe_load(card.split("---\n")[1])["pipeline_tag"] == "question-answering"
    assert (
        "A model that finds the answer to a question in a text (`BertForQuestionAnswering`) without 6 of its 12"
        in card
    )
    found = run_lines(card.replace('("path/to/this/folder"', f'("{exported.place}"'))
    assert type(found["model"]).__module__.startswith(
        "transformers_modules."
    )  # the folder's own code
    assert found["answers"] == own_answers(model, found)


@pytest.mark.parametrize(
    ("metric", "name", "has_interval"),
    [
        ("token_accuracy", "accuracy", False),
        ("span_exact", "exact_match", True),
        ("span_f1", "f1", False),
    ],
)
def test_metrics_of_other_kinds(run, metric, name, has_interval, monkeypatch):
    result = json.loads((run / "result.json").read_text())
    monkeypatch.setattr("auber.run.files.read_result", lambda folder: {**result, "metric": metric})
    card = write_card(open_source(run), "mine")
    assert f"metrics:\n- {name}\n" in card
    assert ("(Wilson, over dev rows;" in card) == has_interval


def test_a_card_without_a_run_invents_nothing(tmp_path):
    save_pruned(tmp_path / "mine")
    card = (export_model(tmp_path / "mine", "hub").place / "README.md").read_text()
    assert "It was exported from a model folder that records no scores." in card
    assert "- exported from a model folder; the run that made it is not recorded" in card
    assert "metrics" not in yaml.safe_load(card.split("---\n")[1])


def test_other_metrics_and_what_to_be_careful_about(run, tmp_path, monkeypatch):
    result = json.loads((run / "result.json").read_text())
    changed = {
        **result,
        "metric": "matthews",
        "command": "auber prune --task cola",
        "dev": {**result["dev"], "one_class": True},
    }
    changed["provenance"] = {**result["provenance"], "commit": {"id": "abc", "dirty": True}}
    monkeypatch.setattr("auber.run.files.read_result", lambda folder: changed)
    card = (export_model(run, "hub", out=tmp_path / "out").place / "README.md").read_text()
    assert (
        "| 95 % interval | unknown: it takes the answers row by row, which a run does not keep |"
        in card
    )
    assert "- matthews_correlation\n" in card
    assert "| careful | the model gives everything in dev the same answer |" in card
    assert "- command: `auber prune --task cola`" in card
    assert "- commit: `abc`, with local changes" in card


@pytest.mark.parametrize(("right", "rows"), [(81, 100), (1, 2), (3, 400)])
def test_the_ends_of_the_interval_are_shares_that_the_score_test_just_allows(right, rows):
    share = right / rows
    low, high = accuracy_interval(share, rows)
    assert low < share < high
    for end in (low, high):
        assert abs(share - end) == pytest.approx(
            1.959964 * (end * (1 - end) / rows) ** 0.5, rel=1e-4
        )


def test_the_interval_stays_a_share():
    assert accuracy_interval(1.0, 10)[1] == 1
    assert accuracy_interval(0.0, 10)[0] == 0


def test_pushing_makes_a_private_model_with_a_card_that_names_it(run, tmp_path):
    exported, api = export_model(run, "hub", out=tmp_path / "out"), Hub()
    assert hub.push(exported, "pruned", api=api) == "https://huggingface.co/someone/pruned"
    assert api.made == [("pruned", {"private": True, "exist_ok": True})]
    ((name, files, message),) = api.uploaded
    assert (name, message) == ("someone/pruned", "mine, pruned by auber")
    assert files.keys() == exported.files.keys()
    assert b'model="someone/pruned", trust_remote_code=True' in files["README.md"]


def test_the_reason_of_a_push_that_fails_is_on_one_line(run, tmp_path):
    """The hub's client has what the hub said below a line that says nothing."""
    exported = export_model(run, "hub", out=tmp_path / "out")
    api = Hub(
        RuntimeError(
            "Bad request:\n\n  the card has no licence "
            + "x" * 400
            + "\nAuthorization: Bearer secret"
        )
    )
    with pytest.raises(
        CheckpointError,
        match=r"^pruned: cannot be pushed \(Bad request: the card has no licence x+\);",
    ) as caught:
        hub.push(exported, "pruned", api=api)
    assert len(str(caught.value)) < 600
    assert "secret" not in str(caught.value)


def test_a_push_that_fails_keeps_the_folder_and_the_token(run, tmp_path):
    exported = export_model(run, "hub", out=tmp_path / "out")
    api = Hub(RuntimeError(f"401 for token {TOKEN}\nAuthorization: Bearer {TOKEN}"))
    message = r"^pruned: cannot be pushed \(401 for token hf_... Authorization: Bearer hf_...\); log in with 'hf auth login' and try again, the folder stays in .*out$"
    with pytest.raises(CheckpointError, match=message) as caught:
        hub.push(exported, "pruned", api=api)
    assert caught.value.__suppress_context__
    assert (exported.place / "README.md").is_file()


def test_a_whole_model_needs_no_such_folder(tmp_path):
    save_pruned(tmp_path / "whole", {})
    message = r"^whole: --to hub is for pruned models, this one has all its heads; push its folder as it is$"
    with pytest.raises(ConfigError, match=message):
        export_model(tmp_path / "whole", "hub")


def test_mistakes_are_one_line(run_auber, run, tmp_path):
    code, _, err = run_auber(
        "export", run, "--to", "dense", "--push", "a", "--out", tmp_path / "out"
    )
    assert (code, err) == (2, "auber: --push goes with --to hub, found --to dense\n")
    code, _, err = run_auber(
        "export", run, "--to", "hub", "--push", "a/b/c", "--out", tmp_path / "out"
    )
    assert code == 2
    assert re.match(r"auber: --push must be NAME or OWNER/NAME, found 'a/b/c' \(.*\)\n$", err)
    assert not (tmp_path / "out").exists()  # said before anything is done


def test_the_command(run_auber, run, tmp_path, monkeypatch):
    api = Hub()
    monkeypatch.setattr("huggingface_hub.HfApi", lambda **options: api)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    options = ["export", run, "--to", "hub", "--push", "someone/pruned"]
    code, out, err = run_auber(*options, "--out", tmp_path / "one")
    assert code == 0
    assert out.endswith(
        "\npushed: https://huggingface.co/someone/someone/pruned\n"
    )  # the stand-in adds an owner
    code, as_json, other = run_auber(*options, "--out", tmp_path / "two", "--json")
    assert json.loads(as_json)["pushed"] == "https://huggingface.co/someone/someone/pruned"
    written = b"".join(path.read_bytes() for path in (tmp_path / "one").iterdir()).decode(
        errors="ignore"
    )
    assert TOKEN not in out + err + as_json + other + written
    code, as_json, _ = run_auber(
        "export", run, "--to", "hub", "--out", tmp_path / "three", "--json"
    )
    assert json.loads(as_json)["pushed"] is None
