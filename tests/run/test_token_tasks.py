"""Runs on tagging and question answering, from Python and from the command line."""

from __future__ import annotations

import json
import shutil

import pytest

import auber
from auber.data.encoding import encode_split
from auber.errors import TaskError
from auber.training.evaluation import evaluate_rows
from tests.kinds import METRICS_OF, TOKEN_KINDS, small_kind_task, write_kind_files
from tests.small import SETTINGS, small_config, small_start, small_task

# the agent never stops early, so that heads go
GREEDY_FOR_HEADS = {"agent.choose": "rollout", "agent.stop_value": -1e6}
WORDS = [
    word
    for key, value in {**SETTINGS, **GREEDY_FOR_HEADS}.items()
    for word in ("--set", f"{key}={value}")
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """The folder of an untuned encoder."""
    folder = tmp_path_factory.mktemp("encoder")
    auber.save(*small_start(bare=True), folder)
    return folder


@pytest.fixture(params=TOKEN_KINDS, scope="module")
def files(request, tmp_path_factory):
    """A kind and files of its rows."""
    return request.param, *write_kind_files(request.param, tmp_path_factory.mktemp("rows"))


@pytest.fixture
def run_json(run_auber):
    """Run a command with `--json`; return what it prints."""

    def call(*words):
        code, out, err = run_auber(*words, "--json", "--quiet")
        assert code == 0, err
        return json.loads(out)

    return call


def test_prune_from_files_and_evaluate_what_it_saved(files, encoder, run_json, tmp_path):
    kind, train, dev = files
    rows, run = ["--train", train, "--dev", dev, "--kind", kind], tmp_path / "run"
    result = run_json(
        "prune", "--model", encoder, *rows, "--out", run, *WORDS, "--protocol", "seen"
    )
    assert result["heads"]["removed"] == 3 * 3
    assert result["metric"] == METRICS_OF[kind][1]
    assert result["labels"] == (5 if kind == "tokens" else 2)
    model, tokenizer = auber.load(run / "model"), auber.load_tokenizer(run / "model")
    assert model.config.auber_removed_heads == result["plan"]["heads"]
    encoded = encode_split(tokenizer, small_kind_task(kind), "dev", 24)
    scores = evaluate_rows(model, encoded, result["metric"])
    assert (scores.score, scores.loss) == pytest.approx(
        (result["dev"]["score"], result["dev"]["loss"])
    )
    found = run_json("evaluate", run, *rows, "--set", "max_length=24")
    assert found["score"] == pytest.approx(result["dev"]["score"])
    for place in (run, run / "model"):  # a run knows its metric, kind and length
        found = run_json("evaluate", place, "--dev", dev)
        assert found["metric"] == result["metric"]
        assert found["score"] == pytest.approx(result["dev"]["score"])
    elsewhere = shutil.copytree(run / "model", tmp_path / "elsewhere")  # a model its kind
    assert run_json("evaluate", elsewhere, "--dev", dev)["metric"] == result["metric"]


def test_finetune_then_prune_and_match(files, encoder, run_json, tmp_path):
    kind, train, dev = files
    # The kind follows from the metric.
    rows = ["--train", train, "--dev", dev, "--metric", METRICS_OF[kind][0], *WORDS]
    start, run = tmp_path / "start", tmp_path / "run"
    started = run_json("finetune", "--model", encoder, *rows, "--out", start)
    ranking = ["--method", "michel", "--heads", "4"]
    result = run_json("prune", "--model", start, *rows, *ranking, "--out", run)
    assert result["heads"]["removed"] == 4
    assert result["start"] == started["start"]


def test_fold_models_give_a_smooth_reward(files, encoder, run_json, tmp_path):
    """From the command line, with a recorded or a named pretrained model."""
    kind, train, dev = files
    words = ["--train", train, "--dev", dev, "--kind", kind, "--protocol", "crossfit", *WORDS]
    words += ["--set", "search.prior=none"]
    run_json("finetune", "--model", encoder, "--out", tmp_path / "start", *words)
    words += ["--model", tmp_path / "start"]
    recorded = run_json("prune", *words, "--out", tmp_path / "recorded")
    result = run_json("prune", *words, "--origin", encoder, "--out", tmp_path / "run")
    assert (recorded["plan"], recorded["dev"]) == (result["plan"], result["dev"])
    assert (result["protocol"], result["heads"]["removed"]) == ("crossfit", 3 * 3)
    assert result["cost"]["scout_steps"] > 0
    stage = json.loads((tmp_path / "run" / "stages" / "layer-00.json").read_text())
    assert 0 <= stage["search"]["unpruned_score"] <= 1


def test_a_model_of_another_kind_is_refused():
    model, tokenizer = small_start()
    message = (
        r"^task own: is of kind tokens and needs a model \.\.\.ForTokenClassification, found "
        r"BertForSequenceClassification"
    )
    with pytest.raises(TaskError, match=message):
        auber.prune(model, tokenizer, task=small_kind_task("tokens"), config=small_config())
    with pytest.raises(TaskError, match=message):
        auber.evaluate(model, tokenizer, task=small_kind_task("tokens"), config=small_config())
    model, tokenizer = small_start(kind="spans")
    with pytest.raises(
        TaskError,
        match=r"^task agreement: is of kind sequence and needs a model \.\.\.ForSequenceClass",
    ):
        auber.evaluate(model, tokenizer, task=small_task(), config=small_config())
