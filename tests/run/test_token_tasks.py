"""Runs on tagging and question answering, from Python and from the command line."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

import auber
from auber.data.encoding import encode_split
from auber.errors import TaskError
from auber.training.evaluation import evaluate_rows
from tests.kinds import METRICS_OF, TOKEN_KINDS, small_kind_task, tagged_records, write_kind_files
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


def test_prune_from_files_and_evaluate_what_it_saved(files, encoder, run_auber, tmp_path):
    kind, train, dev = files
    rows = ["--train", train, "--dev", dev, "--kind", kind]
    code, out, err = run_auber(
        "prune",
        "--model",
        encoder,
        *rows,
        "--out",
        tmp_path / "run",
        *WORDS,
        "--protocol",
        "seen",
        "--quiet",
        "--json",
    )
    assert code == 0, err
    result = json.loads(out)
    assert result["heads"]["removed"] == 3 * 3
    assert result["metric"] == METRICS_OF[kind][1]
    assert result["labels"] == (5 if kind == "tokens" else 2)
    model, tokenizer = (
        auber.load(tmp_path / "run" / "model"),
        auber.load_tokenizer(tmp_path / "run" / "model"),
    )
    assert model.config.auber_removed_heads == result["plan"]
    encoded = encode_split(tokenizer, small_kind_task(kind), "dev", 24)
    scores = evaluate_rows(model, encoded, result["metric"])
    assert (scores.score, scores.loss) == pytest.approx(
        (result["dev"]["score"], result["dev"]["loss"])
    )
    code, out, err = run_auber(
        "evaluate", tmp_path / "run", *rows, "--json", "--set", "max_length=24", "--quiet"
    )
    assert code == 0, err
    assert json.loads(out)["score"] == pytest.approx(result["dev"]["score"])
    for place in (
        tmp_path / "run",
        tmp_path / "run" / "model",
    ):  # a run knows its metric, kind and length
        code, out, err = run_auber("evaluate", place, "--dev", dev, "--json", "--quiet")
        assert code == 0, err
        assert json.loads(out)["metric"] == result["metric"]
        assert json.loads(out)["score"] == pytest.approx(result["dev"]["score"])
    shutil.copytree(tmp_path / "run" / "model", tmp_path / "elsewhere")  # a model its kind
    code, out, err = run_auber(
        "evaluate", tmp_path / "elsewhere", "--dev", dev, "--json", "--quiet"
    )
    assert (code, json.loads(out or "{}").get("metric")) == (0, result["metric"]), err


def test_finetune_then_prune_and_match(files, encoder, run_auber, tmp_path):
    kind, train, dev = files
    rows = [
        "--train",
        train,
        "--dev",
        dev,
        "--metric",
        METRICS_OF[kind][0],
    ]  # the kind follows from the metric
    code, out, err = run_auber(
        "finetune",
        "--model",
        encoder,
        *rows,
        "--out",
        tmp_path / "start",
        *WORDS,
        "--quiet",
        "--json",
    )
    assert code == 0, err
    started = json.loads(out)
    code, out, err = run_auber(
        "prune",
        "--model",
        tmp_path / "start",
        *rows,
        "--method",
        "michel",
        "--heads",
        "4",
        "--out",
        tmp_path / "run",
        *WORDS,
        "--quiet",
        "--json",
    )
    assert code == 0, err
    result = json.loads(out)
    assert result["heads"]["removed"] == 4
    assert result["start"] == started["start"]


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_rewards_in_parts_find_the_same_plan(kind, encoder, tmp_path):
    metric, task = METRICS_OF[kind][0], small_kind_task(kind)
    task = replace(task, metric=metric)
    whole, sharded = (
        auber.prune(
            encoder,
            task=task,
            config=small_config(reward__shards=shards),
            out=tmp_path / str(shards),
        )
        for shards in (1, 2)
    )
    assert whole.plan == sharded.plan
    assert whole.result["dev"] == sharded.result["dev"]


def test_fold_models_give_a_smooth_reward(files, encoder, run_auber, tmp_path):
    """From the command line, with a recorded or a named pretrained model."""
    kind, train, dev = files
    words = [
        "--train",
        train,
        "--dev",
        dev,
        "--kind",
        kind,
        "--protocol",
        "crossfit",
        "--quiet",
        "--json",
        *WORDS,
    ]
    words += ["--set", "search.prior=none"]
    code, _, err = run_auber("finetune", "--model", encoder, "--out", tmp_path / "start", *words)
    assert code == 0, err
    words += ["--model", tmp_path / "start"]
    plans = []
    for name, origin in (("remembered", []), ("run", ["--origin", encoder])):
        code, out, err = run_auber("prune", *origin, *words, "--out", tmp_path / name)
        assert code == 0, err
        result = json.loads(out)
        plans.append((result["plan"], result["dev"]))
    assert plans[0] == plans[1]
    code, _, err = run_auber(
        "prune", *words, "--model", tmp_path / "start" / "model", "--out", tmp_path / "bare"
    )
    assert code == 2
    assert (
        "is fine-tuned, and fold models must not have seen all rows: name the pretrained model with "
        "--origin" in err
    )
    assert (result["protocol"], result["heads"]["removed"]) == ("crossfit", 3 * 3)
    assert result["cost"]["scout_steps"] > 0
    stage = json.loads((tmp_path / "run" / "stages" / "layer-00.json").read_text())
    assert 0 <= stage["search"]["unpruned_score"] <= 1


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_a_live_model_of_the_kind(kind):
    task = small_kind_task(kind)
    model, tokenizer = small_start(kind=kind, num_labels=task.num_labels)
    pruned = auber.prune(
        model, tokenizer, task=task, method="random", heads=2, config=small_config()
    )
    assert pruned.plan.num_removed == 2
    assert type(pruned.model) is type(model)
    scores = auber.evaluate(pruned.model, tokenizer, task=task, config=small_config())
    assert scores.score == pytest.approx(pruned.result["dev"]["score"])


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


def test_rows_in_memory_go_straight_in(encoder):
    task = auber.make_task(tagged_records(40, 0), tagged_records(12, 1), kind="tokens")
    pruned = auber.prune(
        encoder, task=task, method="original", config=small_config(first__epochs=1)
    )
    assert pruned.result["labels"] == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kind", "token"], "auber: Unknown kind 'token'. Did you mean 'tokens'?"),
        (
            ["--kind", "tokens", "--metric", "span_f1"],
            "auber: metric span_f1 scores rows of kind spans, found kind tokens",
        ),
        (["--kind", "tokens", "--labels", "O,B-X"], "auber: {train}, line 1, word 1 "),
        (
            [],
            "auber: {train}, line 1: Unknown column 'text'. Known: tags, tokens; they look "
            "like rows of kind tokens: ",
        ),
    ],
)
def test_a_mistake_is_one_line(arguments, message, encoder, run_auber, tmp_path):
    train, dev = write_kind_files("tokens", tmp_path)
    code, out, err = run_auber(
        "prune",
        "--model",
        encoder,
        "--train",
        train,
        "--dev",
        dev,
        "--out",
        tmp_path / "run",
        *arguments,
    )
    assert (code, out) == (2, "")
    assert err.startswith(message.format(train=train))
    assert err.count("\n") == 1


@pytest.mark.parametrize("option", [["--kind", "tokens"], ["--labels", "a,b"]])
def test_a_known_task_has_its_own(option, encoder, run_auber, tmp_path):
    code, _, err = run_auber(
        "prune", "--model", encoder, "--task", "agreement", "--out", tmp_path / "run", *option
    )
    assert code == 2
    assert err == f"auber: {option[0]} goes with your own rows; task 'agreement' has its own\n"


def test_the_list_of_tasks_names_the_formats(run_auber):
    _, out, _ = run_auber("list", "tasks")
    for word in ("--kind", "sequence", "tokens", "spans", "conll", "SQuAD json", "jsonl"):
        assert word in out
