from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from auber.export.pages import accuracy_interval, write_card
from auber.export.source import read_source
from auber.models.remote_code import MODELING_FILE
from tests.export.models import save_pruned
from tests.export.test_source import FINISHED


@pytest.fixture(scope="module")
def source():
    """A finished run without three of its eight heads."""
    return read_source(FINISHED)


def change_result(source, **changes):
    return replace(source, result=source.result.model_copy(update=changes))


def front_of(card):
    return yaml.safe_load(card.split("---\n")[1])


def test_the_card_of_a_run(source):
    card, result = write_card(source, "me/mine"), source.result
    assert front_of(card) == {
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["auber", "pruning", "bert"],
        "metrics": ["accuracy"],
    }
    assert "---\n\n# finished\n" in card
    assert "(`BertForSequenceClassification`) without 3 of 8 attention heads" in card
    assert "`auber`, after Lee, Lee and Kang: *AUBER: Auto" in card
    low, high = (100 * end for end in accuracy_interval(result.dev.score, 40))
    assert f"| dev accuracy | {100 * result.dev.score:.2f} on 40 rows |\n| 95 % int" in card
    assert f"| 95 % interval | {low:.2f} to {high:.2f} (Wilson, over dev rows;" in card
    assert "| most frequent class of dev | 50.00 % of the rows |\n\n## Layers" in card
    for layer in range(2):
        gone = result.plan.heads.get(layer, ())
        removed = ", ".join(map(str, gone)) or "none"
        assert f"| {layer} | {4 - len(gone)} of 4 | {removed} | " in card
    length = result.config["max_length"]
    assert f"40 dev, cut to {length} tokens, content hash `{result.data}`\n- weights" in card
    assert f"torch {result.provenance.versions['torch']}, " in card
    assert f"{len(MODELING_FILE.read_text().splitlines())} lines" in card
    assert 'model="me/mine", trust_remote_code=True' in card
    for unwanted in (str(FINISHED), "None", "{{", "{%", "\n\n\n"):
        assert unwanted not in card


def test_a_card_of_a_model_folder_invents_nothing(tmp_path):
    save_pruned(tmp_path / "mine")
    card = write_card(read_source(tmp_path / "mine"), "me/mine")
    assert "It was exported from a model folder that records no scores." in card
    assert "They were\nremoved with the package `auber`.\n" in card
    assert "- exported from a model folder; the run that made it is not recorded" in card
    assert "metrics" not in front_of(card)


def test_the_card_of_a_sentence_encoder(tmp_path):
    save_pruned(tmp_path / "mine", kind="embeddings")
    card = write_card(read_source(tmp_path / "mine"), "me/mine")
    assert front_of(card)["library_name"] == "sentence-transformers"
    assert "A sentence encoder (`BertModel`) without" in card
    assert 'encoder = SentenceTransformer("me/mine", trust_remote_code=True)\n' in card
    assert "\nThe same flag works with `AutoModel.from_pretrained`, which" in card


@pytest.mark.parametrize(
    ("metric", "name", "has_interval"),
    [("matthews", "matthews_correlation", False), ("span_exact", "exact_match", True)],
)
def test_other_metrics(source, metric, name, has_interval):
    card = write_card(change_result(source, metric=metric), "mine")
    assert front_of(card)["metrics"] == [name]
    assert ("(Wilson, over dev rows;" in card) == has_interval
    assert ("unknown: it needs the answers row by row" in card) != has_interval


def test_agreement_is_no_metric_of_a_task(source):
    card = write_card(change_result(source, answered=True), "mine")
    assert "metrics" not in front_of(card)
    assert "| dev agreement with the unpruned model | " in card
    assert "accuracy" not in card


def test_what_readers_should_know(source):
    dev, provenance = source.result.dev, source.result.provenance
    commit = provenance.commit.model_copy(update={"id": "abc", "dirty": True})
    changed = change_result(
        source,
        command="auber prune --task cola",
        dev=dev.model_copy(update={"one_class": True}),
        provenance=provenance.model_copy(update={"commit": commit}),
    )
    card = write_card(changed, "mine")
    assert "| warning | the model gives every dev row the same answer |" in card
    assert "- command: `auber prune --task cola`\n" in card
    assert "- commit: `abc`, with local changes\n" in card


def test_the_interval_is_wilsons():
    assert accuracy_interval(0.81, 100) == pytest.approx((0.72225, 0.87485), abs=1e-4)
    assert accuracy_interval(1.0, 10)[1] == 1
    assert accuracy_interval(0.0, 10)[0] == 0
