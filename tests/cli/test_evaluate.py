from __future__ import annotations

import json
import shutil

import pytest

import auber
from auber.cli.screen import describe_result
from tests.cli.conftest import SMALL
from tests.cli.run_folder import RESULT
from tests.small import small_start


@pytest.fixture(scope="module")
def run(files, tmp_path_factory):
    """A finished run of `auber finetune`, with rows cut to 4 tokens, which leaves out the verb."""
    place = tmp_path_factory.mktemp("evaluate") / "run"
    settings = [word.replace("max_length=24", "max_length=4") for word in map(str, SMALL)]
    options = dict(word.split("=") for word in settings if "=" in word)
    task = auber.make_task(files / "train.csv", files / "dev.csv", text="sentence", label="good")
    config = auber.make_config(settings=options)
    auber.finetune(files / "model", task=task, config=config, out=place)
    return place


@pytest.fixture
def evaluate(run_auber):
    """Call `auber evaluate`; return its JSON, or its one-line message."""

    def call(*arguments):
        code, out, err = run_auber("evaluate", *arguments, "--json")
        if code == 0:
            return json.loads(out)
        assert (code, out, err[:7], err.count("\n")) == (2, "", "auber: ", 1)
        return err[7:-1]

    return call


def test_the_score_of_a_run(run_auber, evaluate, run, dev_rows, own_rows):
    result = json.loads((run / "result.json").read_text())
    scores = evaluate(run, *own_rows)
    assert (scores["score"], scores["rows"]) == (result["dev"]["score"], 8)
    assert evaluate(run, *dev_rows) == scores, "the model names its classes"
    code, out, err = run_auber("evaluate", run, *dev_rows)
    first, *warnings = out.splitlines()
    accuracy, loss = f"{100 * scores['score']:.2f}", f"{scores['loss']:.4f}"
    assert (code, first) == (0, f"dev accuracy {accuracy}, loss {loss}, 8 rows"), err
    assert warnings == describe_result({**result, "learned": None})[3:]
    assert bool(warnings) == (scores["one_class"] or scores["score"] <= result["dev"]["majority"])
    train = evaluate(run, *own_rows, "--split", "train")
    assert (train["split"], train["score"]) == ("train", result["train"]["score"])


def test_mistakes(evaluate, run, files, dev_rows, own_rows, tmp_path, monkeypatch):
    assert evaluate(run, *dev_rows, "--split", "train") == (
        "--split train: the training rows are needed, found --dev alone; add --train FILE, or "
        "leave --split out"
    )
    assert evaluate(run, *own_rows, "--split", "test") == "Unknown split 'test'. Known: dev, train"
    assert evaluate(run, *dev_rows, "--data", files) == (
        "--data goes with --task; your own rows are the files of --train and --dev"
    )
    columns = [*own_rows[:4], "--label", "good", "--text", "sentence, c"]
    assert "Unknown column 'c'" in evaluate(run, *columns)
    (tmp_path / "run.json").write_text("{}")
    unfinished = f"{tmp_path}: the run is not finished; continue it with --resume"
    assert evaluate(tmp_path, *own_rows) == unfinished
    monkeypatch.setattr("auber.data.glue.load_glue_from_hub", None)  # found before rows are read
    assert evaluate("runs/none", "--task", "cola") == (
        "runs/none: must be a finished run or a model folder, found nothing; correct the path"
    )


def test_the_rows_must_be_named(evaluate, tmp_path, files):
    rows = "add --task TASK, or --dev FILE --text COLUMN --label COLUMN"
    named = "the rows to score must be given"
    assert evaluate(files / "model") == f"{files / 'model'}: {named}; {rows}"
    (tmp_path / "run.json").write_text("{}")
    for task, advice in (("rte", "add --task rte"), ("own", rows)):
        (tmp_path / "result.json").write_text(json.dumps({**RESULT, "task": task}))
        of_task = f"(the run is of task '{task}'); {advice}"
        assert evaluate(tmp_path) == f"{tmp_path}: {named} {of_task}"


def test_rows_are_cut_as_in_the_run(evaluate, run, own_rows, tmp_path):
    def loss(*options, place=run):
        return evaluate(place, *own_rows, *options)["loss"]

    assert auber.load(run).config.num_labels == 2
    assert len(auber.load_tokenizer(run)) == len(auber.load_tokenizer(run / "model"))
    found = json.loads((run / "result.json").read_text())["dev"]["loss"]
    assert loss() == loss("--set", "max_length=4") == pytest.approx(found)
    assert loss("--set", "max_length=128") != pytest.approx(found)
    assert loss(place=run / "model") == loss()
    shutil.copytree(run / "model", tmp_path / "elsewhere")
    assert loss(place=tmp_path / "elsewhere") == loss("--set", "max_length=128")
    (tmp_path / "whole.toml").write_text("max_length = 128\n")
    assert loss("--config", tmp_path / "whole.toml") == loss("--set", "max_length=128")


def test_rows_of_one_file_may_have_one_class(evaluate, files, dev_rows, own_rows, tmp_path):
    model, tokenizer = small_start()
    model.config.id2label = {0: "yes", 1: "no"}
    place = tmp_path / "model"
    auber.save(model, tokenizer, place)
    lines = (files / "dev.csv").read_text().splitlines()
    some_lines = [lines[0], *(line for line in lines if line.endswith("yes"))]
    (tmp_path / "yes.csv").write_text("\n".join(some_lines) + "\n")
    some, every = (
        evaluate(place, "--dev", rows, *dev_rows[2:])
        for rows in (tmp_path / "yes.csv", dev_rows[1])
    )
    assert 0 < some["rows"] < every["rows"]
    assert evaluate(place, *own_rows, "--labels", "yes, no")["score"] == every["score"]
    assert evaluate(place, *own_rows) == (
        f"{place}: its classifier orders the labels yes, no, the task no, yes; give the task that "
        "order (--labels yes,no)"
    )
    wanted = "a regression target must be a finite number, found 'yes'; correct it"
    message = evaluate(place, *dev_rows, "--metric", "pearson")
    assert f"line 2, column 'good': {wanted}" in message


def test_a_model_without_names_for_its_classes(evaluate, dev_rows, tmp_path):
    model, tokenizer = small_start()
    auber.save(model, tokenizer, tmp_path / "model")
    assert evaluate(tmp_path / "model", *dev_rows) == (
        f"{tmp_path / 'model'}: the model has no names for its classes; add --train FILE, which "
        "has them, or --labels"
    )
    assert evaluate(tmp_path / "model", *dev_rows, "--labels", "no,yes")["rows"] == 8


def test_a_regression_is_scored_by_the_metric_of_its_run(run_auber, evaluate, files, tmp_path):
    for name, count in (("train", 24), ("dev", 9)):
        rows = [f"word{n % 7} word{n % 3} {name},{n / 2}" for n in range(count)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,label", *rows]))
    rows = ["--train", tmp_path / "train.csv", "--dev", tmp_path / "dev.csv", "--metric", "pearson"]
    place = tmp_path / "run"
    command = ["finetune", "--model", files / "model", *rows, "--out", place, *SMALL]
    code, out, _ = run_auber(*command, "--quiet", "--json")
    assert code == 0
    scored = evaluate(place, *rows[2:4])
    assert (scored["metric"], scored["score"]) == ("pearson", json.loads(out)["dev"]["score"])
    assert evaluate(place, *rows[2:4], "--kind", "sequence") == scored
    shutil.copytree(place / "model", tmp_path / "elsewhere")
    assert evaluate(tmp_path / "elsewhere", *rows[2:4]) == (
        f"{tmp_path / 'elsewhere'}: the model predicts a number; add --metric pearson, spearman or "
        "r_squared"
    )
