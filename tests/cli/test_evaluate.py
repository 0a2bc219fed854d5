from __future__ import annotations

import json
import shutil

import pytest

import auber
from auber.cli.screen import describe_result
from tests.cli.conftest import SMALL
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


def test_the_score_of_a_run(run_auber, run, dev_rows, own_rows):
    result = json.loads((run / "result.json").read_text())
    code, out, _ = run_auber("evaluate", run, *own_rows, "--json")
    scores = json.loads(out)
    assert (code, scores["score"], scores["rows"]) == (0, result["dev"]["score"], 8)
    code, out, err = run_auber("evaluate", run, *dev_rows, "--json")
    assert (code, json.loads(out)) == (0, scores), f"the model names its classes: {err}"
    code, out, err = run_auber("evaluate", run, *dev_rows)
    first, *warnings = out.splitlines()
    accuracy, loss = f"{100 * scores['score']:.2f}", f"{scores['loss']:.4f}"
    assert (code, first) == (0, f"dev accuracy {accuracy}, loss {loss}, 8 rows"), err
    assert warnings == describe_result(result)[2:]
    assert bool(warnings) == (scores["one_class"] or scores["score"] <= result["dev"]["majority"])
    code, out, _ = run_auber("evaluate", run, *own_rows, "--split", "train")
    train = f"{100 * result['train']['score']:.2f},"
    assert (code, out.split()[:3]) == (0, ["train", "accuracy", train])


def test_splits(run_auber, run, dev_rows, own_rows):
    code, _, err = run_auber("evaluate", run, *dev_rows, "--split", "train")
    assert (code, err) == (
        2,
        "auber: --split train: the training rows are needed, found --dev alone; add --train FILE, "
        "or leave --split out\n",
    )
    code, _, err = run_auber("evaluate", run, *own_rows, "--split", "test")
    assert (code, err) == (2, "auber: Unknown split 'test'. Known: dev, train\n")


def test_rows_are_cut_as_in_the_run(run_auber, run, own_rows, tmp_path):
    def loss(*options, place=run):
        code, out, err = run_auber("evaluate", place, *own_rows, "--json", *options)
        assert code == 0, err
        return json.loads(out)["loss"]

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


def test_rows_of_one_file_may_have_one_class(run_auber, files, dev_rows, own_rows, tmp_path):
    model, tokenizer = small_start()
    model.config.id2label = {0: "yes", 1: "no"}
    place = tmp_path / "model"
    auber.save(model, tokenizer, place)
    lines = (files / "dev.csv").read_text().splitlines()
    some_lines = [lines[0], *(line for line in lines if line.endswith("yes"))]
    (tmp_path / "yes.csv").write_text("\n".join(some_lines) + "\n")
    some_rows = ["--dev", tmp_path / "yes.csv", *dev_rows[2:]]

    def evaluate(*options):
        code, out, err = run_auber("evaluate", place, *options, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    some, every = evaluate(*some_rows), evaluate(*dev_rows)
    assert 0 < some["rows"] < every["rows"]
    assert evaluate(*own_rows, "--labels", "yes, no")["score"] == every["score"]
    code, _, err = run_auber("evaluate", place, *own_rows)
    assert (code, err) == (
        2,
        f"auber: {place}: its classifier orders the labels yes, no, the task no, yes; "
        "give the task that order (--labels yes,no)\n",
    )
    code, _, err = run_auber("evaluate", place, *dev_rows, "--metric", "pearson")
    wanted = "a regression target must be a finite number, found 'yes'; correct it\n"
    assert code == 2
    assert f"line 2, column 'good': {wanted}" in err
    code, _, err = run_auber("evaluate", place, *dev_rows, "--data", files)
    assert (code, err) == (
        2,
        "auber: --data goes with --task; your own rows are the files of --train and --dev\n",
    )


def test_a_model_without_names_for_its_classes(run_auber, dev_rows, tmp_path):
    model, tokenizer = small_start()
    auber.save(model, tokenizer, tmp_path / "model")
    code, _, err = run_auber("evaluate", tmp_path / "model", *dev_rows)
    assert (code, err) == (
        2,
        f"auber: {tmp_path / 'model'}: the model has no names for its classes; "
        "add --train FILE, which has them, or --labels\n",
    )
    options = [*dev_rows, "--labels", "no,yes", "--json"]
    code, out, _ = run_auber("evaluate", tmp_path / "model", *options)
    assert (code, json.loads(out)["rows"]) == (0, 8)


def test_a_regression_is_scored_by_the_metric_of_its_run(run_auber, files, tmp_path):
    for name, count in (("train", 24), ("dev", 9)):
        rows = [f"word{n % 7} word{n % 3} {name},{n / 2}" for n in range(count)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,label", *rows]))
    rows = ["--train", tmp_path / "train.csv", "--dev", tmp_path / "dev.csv", "--metric", "pearson"]
    place = tmp_path / "run"
    command = ["finetune", "--model", files / "model", *rows, "--out", place, *SMALL]
    code, out, _ = run_auber(*command, "--quiet", "--json")
    assert code == 0
    code, scored, _ = run_auber("evaluate", place, *rows[2:4], "--json")
    assert json.loads(scored)["metric"] == "pearson"
    assert json.loads(scored)["score"] == json.loads(out)["dev"]["score"]
    code, again, _ = run_auber("evaluate", place, *rows[2:4], "--kind", "sequence", "--json")
    assert (code, again) == (0, scored)
    shutil.copytree(place / "model", tmp_path / "elsewhere")
    code, _, err = run_auber("evaluate", tmp_path / "elsewhere", *rows[2:4])
    assert (code, err) == (
        2,
        f"auber: {tmp_path / 'elsewhere'}: the model predicts a number; add --metric pearson, "
        "spearman or r_squared\n",
    )


def test_names_of_columns_may_be_separated_by_blanks(run_auber, files, tmp_path):
    (tmp_path / "pairs.csv").write_text("a,b,good\none,two,yes\nthree,four,no\n")
    rows = ["--train", tmp_path / "pairs.csv", "--dev", tmp_path / "pairs.csv", "--label", "good"]
    code, _, err = run_auber("evaluate", files / "model", *rows, "--text", "a, c")
    assert code == 2
    assert "Unknown column 'c'" in err


def test_an_unfinished_run(run_auber, own_rows, tmp_path):
    (tmp_path / "run.json").write_text("{}")
    message = f"auber: {tmp_path}: the run is not finished; continue it with --resume\n"
    assert run_auber("evaluate", tmp_path, *own_rows) == (2, "", message)


def test_a_missing_model_is_reported_before_rows_are_downloaded(run_auber, monkeypatch):
    monkeypatch.setattr("auber.data.glue.load_glue_from_hub", None)
    needed = "must be a finished run or a model folder, found nothing; correct the path"
    message = f"auber: runs/none: {needed}\n"
    assert run_auber("evaluate", "runs/none", "--task", "cola") == (2, "", message)


def test_the_rows_must_be_named(run_auber, tmp_path, files):
    rows = "add --task TASK, or --dev FILE --text COLUMN --label COLUMN\n"
    model = files / "model"
    message = f"auber: {model}: which rows to score it on must be named; {rows}"
    assert run_auber("evaluate", model) == (2, "", message)
    (tmp_path / "run.json").write_text("{}")
    for task, advice in (("rte", "add --task rte\n"), ("own", rows)):
        (tmp_path / "result.json").write_text(json.dumps({"task": task}))
        named = f"which rows to score it on must be named (the run is of task '{task}'); {advice}"
        assert run_auber("evaluate", tmp_path) == (2, "", f"auber: {tmp_path}: {named}")
