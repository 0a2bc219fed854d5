"""Runs to a target size: plan, result, resume, matched runs, and what is refused."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

import auber
from auber.data.encoding import encode_split
from auber.errors import ConfigError
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.run.records import ResultRecord
from auber.system.records import read
from auber.training.evaluation import predict
from tests.small import small_config, small_start, small_task
from tests.tiny_models import HEADS, LAYERS, NEURONS

TASK = small_task()
CONFIG = small_config()


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """The folder of a finished fine-tuning."""
    folder = tmp_path_factory.mktemp("runs") / "start"
    auber.finetune(*small_start(), task=TASK, config=CONFIG, out=folder)
    return folder


def prune(start, name, method="fisher", *, config=CONFIG, **options):
    return auber.prune(
        start, task=TASK, method=method, config=config, out=start.parent / name, **options
    )


@pytest.fixture(scope="module")
def half(start):
    """A finished run to half of the multiply-adds, and its folder."""
    return prune(start, "half", keep=0.5), start.parent / "half"


def test_the_plan_and_the_result(half):
    pruned, folder = half
    result = pruned.result
    share = pruned.plan.cost(pruned.model, 24).multiply_adds
    assert 0.45 < share <= 0.5
    assert pruned.plan.heads
    assert pruned.plan.neurons
    assert result["remaining"]["multiply_adds"] == pytest.approx(share, abs=1e-5)
    assert 0.5 < result["remaining"]["parameters"] < 1
    assert result["neurons"] == {
        "removed": pruned.plan.num_neurons,
        "total": LAYERS * NEURONS,
        "per_layer": NEURONS,
    }
    assert result["heads"]["removed"] == pruned.plan.num_heads
    assert (
        PruningPlan.from_json(result["plan"])
        == pruned.plan
        == PruningPlan.read(folder / "plan.json")
    )
    assert result["tuned_layers"] == []
    assert {path.stem for path in (folder / "stages").glob("*.json")} == {"first", "plan", "last"}
    assert read(ResultRecord, folder / "result.json", "").plan == pruned.plan


def test_the_saved_model_gives_the_same_answers(half):
    pruned, folder = half
    loaded, tokenizer = auber.load(folder / "model"), auber.load_tokenizer(folder / "model")
    assert encoder_of(loaded).removed == pruned.plan
    rows = encode_split(tokenizer, TASK, "dev", 24)
    assert torch.equal(predict(loaded, rows), predict(pruned.model.eval(), rows))
    assert auber.evaluate(folder, task=TASK, config=CONFIG).score == pruned.result["dev"]["score"]


def test_resuming_gives_the_same_bits(half, start):
    pruned, folder = half
    again = prune(start, "half", keep=0.5, resume=True)
    assert (again.plan, again.result) == (pruned.plan, pruned.result)
    stopped = shutil.copytree(folder, folder.with_name("stopped"))
    (stopped / "result.json").unlink()
    for name in ("plan.json", "last.json"):  # all that came after the first tuning
        (stopped / "stages" / name).unlink()
    again = prune(start, "stopped", keep=0.5, resume=True)
    assert again.result["model_sha256"] == pruned.result["model_sha256"]
    with pytest.raises(auber.AuberError, match=r"is another run: size.keep was 0.5 and is now 0.6"):
        prune(start, "half", keep=0.6, resume=True)


@pytest.mark.parametrize("method", ["random", "original+tuning"])
def test_other_methods_match_a_run(half, start, method):
    pruned, folder = half
    other = prune(start, method, method, heads=folder)
    steps = [run.result["cost"]["tuning_steps"] for run in (pruned, other)]
    assert steps[0] == steps[1] > 0
    share = other.plan.cost(other.model, 24).multiply_adds
    assert share == 1 if method == "original+tuning" else 0.45 < share <= 0.5


def test_even_widths_give_an_ordinary_model(start):
    import transformers

    config = CONFIG.replace({"size.even": True})
    pruned = prune(start, "even", config=config, keep=0.8)
    folder = start.parent / "even" / "model"
    assert not (folder / "modeling_auber.py").exists()
    entries = json.loads((folder / "config.json").read_text())
    assert "auto_map" not in entries
    assert 0 < entries["intermediate_size"] < NEURONS
    assert entries["intermediate_size"] % 8 == 0
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    rows = encode_split(auber.load_tokenizer(folder), TASK, "dev", 24)
    assert torch.equal(predict(loaded.eval(), rows), predict(pruned.model.eval(), rows))
    again = prune(start, "even", config=config, keep=0.8, resume=True)
    assert again.plan == pruned.plan


def test_a_pruned_model_is_pruned_further(half, start):
    _, folder = half
    smaller = prune(folder, "quarter", keep=0.3)
    assert smaller.plan.cost(smaller.model, 24).multiply_adds <= 0.3
    assert all(len(gone) < HEADS for gone in smaller.plan.heads.values())


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("fisher", {"keep": 0}, "^--keep must be a share of the encoder's multiply-adds, above 0 "),
        ("fisher", {"keep": 1.5}, "above 0 and at most 1, found 1.5; give one such as 0.5$"),
        ("fisher", {"keep": "half"}, "at most 1, found 'half'; give one such as 0.5$"),
        (
            "fisher",
            {"keep": 0.1},
            r"^--keep must be at least 0.\d+ \(one head and 8 neurons stay in each layer\), found",
        ),
        (
            "fisher",
            {"keep": 0.5, "heads": 3},
            "^--keep 0.5 and a number of heads exclude each other; give --keep, --heads or ",
        ),
        (
            "auber",
            {"keep": 0.5},
            "^method 'auber' decides by its rewards how many heads go; leave out --keep, or choose "
            "--method random, michel, fisher, voita$",
        ),
        ("original", {"keep": 0.5}, "^method 'original' removes nothing; leave out --keep$"),
        (
            "confidence",
            {"keep": 0.5},
            "^method 'confidence' ranks heads only; add --units heads, or choose another method$",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_a_folder_is_made(start, method, options, message):
    with pytest.raises(ConfigError, match=message):
        prune(start, "refused", method, **options)
    assert not (start.parent / "refused").exists()


def test_confidence_reaches_a_size_with_heads(start):
    config = CONFIG.replace({"size.units": "heads"})
    pruned = prune(start, "confidence", "confidence", config=config, keep=0.7)
    assert not pruned.plan.neurons
    assert pruned.result["remaining"]["multiply_adds"] <= 0.7
