from __future__ import annotations

import json
import os
import re
import shutil

import pytest

import auber
from auber.cli import app, listings
from auber.cli.screen import describe_result
from tests.small import SETTINGS, small_start

SMALL = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A model folder and csv files of rows."""
    folder = tmp_path_factory.mktemp("files")
    model, tokenizer = small_start(bare=True)
    auber.save(model, tokenizer, folder / "model")
    rows = [
        f"the {noun} {verb} red,{label}"
        for noun, verb, label in (
            ("key", "is", "yes"),
            ("key", "are", "no"),
            ("keys", "are", "yes"),
            ("keys", "is", "no"),
        )
    ]
    (folder / "train.csv").write_text("sentence,good\n" + "\n".join(rows * 12) + "\n")
    (folder / "dev.csv").write_text("sentence,good\n" + "\n".join(rows * 2) + "\n")
    return folder


def own_rows(files):
    return [
        "--train",
        files / "train.csv",
        "--dev",
        files / "dev.csv",
        "--text",
        "sentence",
        "--label",
        "good",
    ]


def test_help_teaches(run_auber):
    code, out, _ = run_auber("--help")
    assert code == 0
    assert "auber demo" in out
    for command in (
        "demo",
        "prune",
        "finetune",
        "evaluate",
        "study",
        "report",
        "bench",
        "tasks",
        "models",
        "methods",
        "settings",
    ):
        assert command in out
    code, out, _ = run_auber("prune", "--help")
    assert "auber prune --model bert-base-cased --task mrpc --out runs/mrpc" in " ".join(
        out.split()
    )
    assert "original+tuning" in out


def test_every_summary_is_whole_in_80_columns(run_auber, monkeypatch):
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((80, 24)))
    _, out, _ = run_auber("--help")
    commands = out[out.index("Commands:") : out.index("Start with")].split("\n")[1:-2]
    assert len(commands) == len(app.registered_commands)
    assert not [
        line
        for line in commands
        if line.endswith("...") or not line.endswith(".") or len(line) > 80
    ]


def test_no_arguments_show_the_help(run_auber):
    _, out, err = run_auber()
    assert "Usage" in out + err


def test_version(run_auber):
    code, out, _ = run_auber("--version")
    assert (code, out) == (0, "auber 0.1.0\n")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("tasks", ["mrpc", "cola", "rte", "wnli", "agreement", "matthews"]),
        (
            "models",
            [
                "bert",
                "deberta-v2",
                "roberta",
                "xlm-roberta",
                "camembert",
                "distilbert",
                "electra",
                "modernbert",
                "mpnet",
            ],
        ),
        ("methods", ["auber", "auber-reverse", "random", "original+tuning"]),
        (
            "metrics",
            ["accuracy", "sequence", "F1 of the second of two classes", "span_f1", "spans"],
        ),
        ("settings", ["agent.gamma", "reward.max_rows", "protocol"]),
    ],
)
def test_what_can_be_named_is_listed(run_auber, command, words):
    code, out, _ = run_auber(command)
    assert code == 0
    for word in words:
        assert word in out
    code, out, _ = run_auber(command, "--json")
    assert {
        word for row in json.loads(out) for value in row.values() for word in str(value).split(", ")
    } >= set(words)


def test_settings_are_whole_in_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    listings.settings(json=True)
    rows = json.loads(capsys.readouterr().out)
    listings.settings(json=False)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["setting", "paper", "reference", "default"]
    text = " ".join(" ".join(lines).split())
    for row in rows:
        values = f"{row['setting']} {row['paper']} {row['reference']} {row['default']}"
        assert f"{values} {row['meaning']} [{row['allowed']}]" in text
    assert "only under protocol crossfit: reward.measure, reward.caution, reward.folds" in text


def test_who_watches_a_stopped_run_is_told_the_command_that_the_run_said(
    run_auber, files, tmp_path, monkeypatch
):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("auber.run.folder.Run.finish_stage", stop)
    code, _, said = run_auber(
        "finetune",
        "--model",
        files / "model",
        *own_rows(files),
        "--out",
        tmp_path / "run",
        *SMALL,
        "--quiet",
    )
    command = said.partition("go on with: ")[2].strip()
    assert (code, f"--out {tmp_path / 'run'} " in command) == (130, True)
    code, out, _ = run_auber("watch", tmp_path / "run", "--json")
    assert (code, json.loads(out)["resume"]) == (1, command)


def test_finetune_prune_evaluate(run_auber, files, tmp_path):
    code, out, _ = run_auber(
        "finetune", "--model", files / "model", *own_rows(files), "--out", tmp_path / "start", *SMALL, "--quiet",
        "--track", "tensorboard", "--name", "films",
    )  # fmt: skip
    assert code == 0
    assert json.loads((tmp_path / "start" / "result.json").read_text())["task"] == "films"
    assert any((tmp_path / "start" / "track").rglob("events.out.*"))
    assert "dev accuracy" in out
    code, out, err = run_auber(
        "prune",
        "--model",
        tmp_path / "start",
        *own_rows(files),
        "--out",
        tmp_path / "pruned",
        *SMALL,
        "--json",
    )
    assert code == 0
    result = json.loads(out)
    assert result["method"] == "auber"
    assert result["command"].startswith(
        "auber prune --model start --train train.csv --dev dev.csv --text sentence"
    )
    assert result["model"] == "model"
    assert "layer 0: searching" in err
    code, out, _ = run_auber("evaluate", tmp_path / "pruned", *own_rows(files), "--json", *SMALL)
    assert code == 0
    scores = json.loads(out)
    assert (scores["score"], scores["rows"]) == (result["dev"]["score"], 8)
    alone = ["--dev", files / "dev.csv", "--text", "sentence", "--label", "good"]
    code, out, err = run_auber("evaluate", tmp_path / "pruned", *alone, "--json")
    assert (code, json.loads(out)) == (0, scores), f"the model knows its classes: {err}"
    code, out, err = run_auber("evaluate", tmp_path / "pruned", *alone)
    first, *warnings = out.splitlines()
    assert (code, first) == (
        0,
        f"dev accuracy {100 * scores['score']:.2f}, loss {scores['loss']:.4f}, 8 rows",
    ), err
    told = describe_result(result)[2:]
    assert (warnings, bool(told)) == (
        told,
        scores["one_class"] or scores["score"] <= result["dev"]["majority"],
    )
    code, _, err = run_auber("evaluate", tmp_path / "pruned", *alone, "--split", "train")
    assert (code, err) == (
        2, "auber: --split train: those rows are needed, found --dev alone; add --train FILE, or leave it out\n"
    )  # fmt: skip
    code, out, _ = run_auber("evaluate", tmp_path / "pruned", *own_rows(files), "--split", "train")
    assert (code, out.split()[:3]) == (
        0,
        ["train", "accuracy", f"{100 * result['train']['score']:.2f},"],
    )
    code, out, err = run_auber(
        "prune", "--model", tmp_path / "start", *own_rows(files), "--out", tmp_path / "random", *SMALL, "--method", "random",
        "--heads-from", tmp_path / "pruned", "--json", "--track", "tensorboard",
    )  # fmt: skip
    assert code == 0, err
    assert json.loads(out)["heads"]["removed"] == result["heads"]["removed"]
    assert any((tmp_path / "random" / "track").rglob("events.out.*"))
    code, _, err = run_auber("evaluate", tmp_path / "pruned", *own_rows(files), "--split", "test")
    assert (code, err) == (2, "auber: Unknown split 'test'. Known: dev, train\n")
    code, out, err = run_auber(
        "prune",
        "--model",
        tmp_path / "start",
        *own_rows(files),
        "--out",
        tmp_path / "pruned",
        *SMALL,
        "--resume",
    )
    assert code == 0
    assert "is complete: nothing to do" in err
    assert f"model: {tmp_path / 'pruned' / 'model'}" in out


def test_the_rows_of_one_file_are_scored_as_they_are(run_auber, files, tmp_path):
    """Nothing is learned from them, so that one class is enough and there is no train that they could stand in."""
    model, tokenizer = small_start()
    model.config.id2label = {0: "yes", 1: "no"}
    auber.save(model, tokenizer, tmp_path / "model")
    lines = (files / "dev.csv").read_text().splitlines()
    (tmp_path / "yes.csv").write_text(
        "\n".join([lines[0], *(line for line in lines if line.endswith("yes"))]) + "\n"
    )
    columns = ["--text", "sentence", "--label", "good", "--json"]
    code, out, err = run_auber(
        "evaluate", tmp_path / "model", "--dev", tmp_path / "yes.csv", *columns
    )
    assert (code, err) == (0, "")
    some = json.loads(out)
    code, out, err = run_auber("evaluate", tmp_path / "model", "--dev", files / "dev.csv", *columns)
    assert (code, err) == (0, "")
    every = json.loads(out)
    assert 0 < some["rows"] < every["rows"]
    with_train = ["--train", files / "train.csv", "--dev", files / "dev.csv", *columns]
    order = f"auber: {tmp_path / 'model'}: its classifier orders the labels yes, no, the task no, yes; give the task that order (--labels yes,no)\n"
    code, _, err = run_auber("evaluate", tmp_path / "model", *with_train)
    assert (code, err) == (2, order)
    code, out, _ = run_auber("evaluate", tmp_path / "model", *with_train, "--labels", "yes, no")
    assert (code, json.loads(out)["score"]) == (0, every["score"])
    code, _, err = run_auber(
        "evaluate", tmp_path / "model", "--dev", files / "dev.csv", *columns, "--metric", "pearson"
    )
    assert code == 2
    assert (
        "line 2, column 'good': a regression target must be a finite number, found 'yes'; correct it\n"
        in err
    )
    code, _, err = run_auber(
        "evaluate", tmp_path / "model", "--dev", files / "dev.csv", *columns, "--data", files
    )
    assert (code, err) == (
        2, "auber: --data goes with --task; your own rows are the files of --train and --dev\n"
    )  # fmt: skip


def test_a_model_without_names_for_its_classes_needs_the_train_rows(run_auber, files, tmp_path):
    model, tokenizer = small_start()
    auber.save(model, tokenizer, tmp_path / "model")
    rows = ["--dev", files / "dev.csv", "--text", "sentence", "--label", "good"]
    code, _, err = run_auber("evaluate", tmp_path / "model", *rows)
    assert (code, err) == (
        2,
        f"auber: {tmp_path / 'model'}: the model has no names for its classes; add --train FILE, which has them, or --labels\n",
    )
    code, out, _ = run_auber("evaluate", tmp_path / "model", *rows, "--labels", "no,yes", "--json")
    assert (code, json.loads(out)["rows"]) == (0, 8)


def test_columns_may_be_named_with_blanks_between(run_auber, files, tmp_path):
    (tmp_path / "pairs.csv").write_text("a,b,good\none,two,yes\nthree,four,no\n")
    rows = [
        "--train",
        tmp_path / "pairs.csv",
        "--dev",
        tmp_path / "pairs.csv",
        "--text",
        "a, c",
        "--label",
        "good",
    ]
    code, _, err = run_auber("evaluate", files / "model", *rows)
    assert code == 2
    assert "Unknown column 'c'" in err


def test_an_unfinished_run_is_not_evaluated(run_auber, files, tmp_path):
    (tmp_path / "run.json").write_text("{}")
    code, _, err = run_auber("evaluate", tmp_path, *own_rows(files))
    assert (code, err) == (
        2,
        f"auber: {tmp_path}: the run is not finished; continue it with --resume\n",
    )


def test_a_model_that_is_not_there_is_said_before_rows_are_read_from_the_hub(
    run_auber, monkeypatch
):
    monkeypatch.setattr("auber.data.glue.load_glue_from_hub", None)
    code, _, err = run_auber("evaluate", "runs/none", "--task", "cola")
    message = "auber: runs/none: must be a finished run or a model folder, found nothing; correct the path\n"
    assert (code, err) == (2, message)


def test_evaluation_cuts_rows_as_the_run_did(run_auber, files, tmp_path):
    """Four tokens leave out the verb, so that the score shows where rows were cut."""
    start = tmp_path / "start"
    cut = [word.replace("max_length=24", "max_length=4") for word in map(str, SMALL)]
    code, _, err = run_auber(
        "finetune", "--model", files / "model", *own_rows(files), "--out", start, *cut, "--quiet"
    )
    assert code == 0, err

    def loss(*options, place=start):
        code, out, err = run_auber("evaluate", place, *own_rows(files), "--json", *options)
        assert code == 0, err
        return json.loads(out)["loss"]

    assert auber.load(start).config.num_labels == 2, "a run's folder is as good as its model's"
    assert len(auber.load_tokenizer(start)) == len(auber.load_tokenizer(start / "model"))
    found = json.loads((start / "result.json").read_text())["dev"]["loss"]
    assert loss() == loss("--set", "max_length=4") == pytest.approx(found)
    assert loss("--set", "max_length=128") != pytest.approx(found)
    assert loss(place=start / "model") == loss()
    shutil.copytree(start / "model", tmp_path / "elsewhere")
    assert loss(place=tmp_path / "elsewhere") == loss("--set", "max_length=128"), (
        "a model alone says nothing of rows"
    )
    (tmp_path / "whole.toml").write_text("max_length = 128\n")
    assert loss("--config", tmp_path / "whole.toml") == loss("--set", "max_length=128")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--task", "mprc"],
            "auber: Unknown task 'mprc'. Did you mean 'mrpc'? Known: agreement, cola, mrpc, rte, wnli",
        ),
        (
            ["--task", "agreement", "--set", "agent.gama=1"],
            "auber: settings: Unknown setting 'agent.gama'. Did you mean",
        ),
        (
            ["--task", "agreement", "--preset", "papr"],
            "auber: Unknown preset 'papr'. Did you mean 'paper'?",
        ),
        (
            ["--task", "agreement", "--set", "seed=1", "--seed", "2"],
            "auber: --set seed and --seed name the same setting",
        ),
        (
            ["--task", "agreement", "--set", "agent.gamma=1", "--set", "agent.gamma=0.5"],
            "auber: --set agent.gamma is there more than once; give it once",
        ),
        (
            ["--task", "agreement", "--metric", "f1"],
            "auber: --metric goes with your own rows; task 'agreement' has its own",
        ),
        (
            ["--task", "agreement", "--text", "q"],
            "auber: --text goes with your own rows; task 'agreement' has its own",
        ),
        (
            ["--task", "agreement", "--label", "y"],
            "auber: --label goes with your own rows; task 'agreement' has its own",
        ),
        (
            ["--train", "a.csv", "--dev", "b.csv", "--data", "glue"],
            "auber: --data goes with --task; your own rows are the files of --train and --dev",
        ),
        (
            ["--task", "agreement", "--train", "x.csv"],
            "auber: --task and --train/--dev exclude each other",
        ),
        (
            [],
            "auber: name a task with --task, or your own rows with --train FILE --dev FILE --text COLUMN --label COLUMN",
        ),
        (
            ["--task", "agreement", "--config", "no.toml"],
            "auber: no.toml: no such file; correct the path",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(run_auber, files, tmp_path, arguments, message):
    code, out, err = run_auber(
        "prune", "--model", files / "model", "--out", tmp_path / "x", *arguments
    )
    assert (code, out) == (2, "")
    assert err.startswith(message)
    assert err.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_a_missing_model_is_one_line(run_auber, files, tmp_path):
    code, _, err = run_auber(
        "prune", "--model", tmp_path / "none", *own_rows(files), "--out", tmp_path / "x"
    )
    assert code == 2
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [["prune", "--out", "x", "--model"], ["finetune", "--out", "x", "--model"], ["evaluate"]],
)
def test_a_folder_of_runs_is_no_model_and_they_are_named(run_auber, tmp_path, command):
    place = tmp_path / "runs"
    for name in "abcde":
        (place / name).mkdir(parents=True)
        (place / name / "run.json").write_text("{}")
    code, _, err = run_auber(*command, place, "--task", "agreement")
    assert code == 2
    assert err == (
        f"auber: {place}: must be a finished run or a model folder, found no run.json and no config.json; name one of the "
        f"runs in it: {place / 'a'}, {place / 'b'}, {place / 'c'}, {place / 'd'}, ...\n"
    )
    (tmp_path / "empty").mkdir()
    code, _, err = run_auber(*command, tmp_path / "empty", "--task", "agreement")
    assert err.endswith(
        "found no run.json and no config.json; give the folder a model was saved in\n"
    )


def test_which_rows_a_run_is_scored_on_must_be_named(run_auber, tmp_path, files):
    rows = "add --task TASK, or --dev FILE --text COLUMN --label COLUMN\n"
    code, _, err = run_auber("evaluate", files / "model")
    assert (code, err) == (
        2,
        f"auber: {files / 'model'}: which rows to score it on must be named; {rows}",
    )
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "result.json").write_text('{"task": "rte"}')
    code, _, err = run_auber("evaluate", tmp_path)
    assert (
        err
        == f"auber: {tmp_path}: which rows to score it on must be named (the run is of task 'rte'); add --task rte\n"
    )
    (tmp_path / "result.json").write_text('{"task": "own"}')
    code, _, err = run_auber("evaluate", tmp_path)
    assert (
        err
        == f"auber: {tmp_path}: which rows to score it on must be named (the run is of task 'own'); {rows}"
    )


def test_quiet_is_without_progress_and_not_without_what_a_reader_must_know(
    run_auber, files, tmp_path, caplog
):
    rows = [
        "--train",
        files / "train.csv",
        "--dev",
        files / "train.csv",
        "--text",
        "sentence",
        "--label",
        "good",
    ]
    code, _, err = run_auber(
        "finetune", "--model", files / "model", *rows, "--out", tmp_path / "run", *SMALL, "--quiet"
    )
    assert (code, err) == (0, "")
    assert re.match(r"careful: (\d+) of \1 dev rows are also in train, ", caplog.messages[-1])


def test_a_model_of_numbers_is_scored_by_the_metric_of_its_run(run_auber, files, tmp_path):
    for name in ("train", "dev"):
        words = [
            f"word{number % 7} word{number % 3}" for number in range(24 if name == "train" else 9)
        ]
        lines = [f"{text} {name},{number / 2}" for number, text in enumerate(words)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,label", *lines]))
    rows = ["--train", tmp_path / "train.csv", "--dev", tmp_path / "dev.csv", "--metric", "pearson"]
    code, out, _ = run_auber(
        "finetune",
        "--model",
        files / "model",
        *rows,
        "--out",
        tmp_path / "run",
        *SMALL,
        "--quiet",
        "--json",
    )
    assert code == 0
    alone = ["--dev", tmp_path / "dev.csv"]
    code, scored, _ = run_auber("evaluate", tmp_path / "run", *alone, "--json")
    assert json.loads(scored)["metric"] == "pearson"
    code, again, _ = run_auber("evaluate", tmp_path / "run", *alone, "--kind", "sequence", "--json")
    assert (code, again) == (0, scored), "a kind that is named does not change the metric"
    assert json.loads(scored)["score"] == json.loads(out)["dev"]["score"]
    shutil.copytree(tmp_path / "run" / "model", tmp_path / "elsewhere")
    code, _, err = run_auber("evaluate", tmp_path / "elsewhere", *alone)
    assert (code, err) == (
        2,
        f"auber: {tmp_path / 'elsewhere'}: the model answers with a number; add --metric pearson, spearman or r_squared to score those\n",
    )


def test_an_unfinished_option_is_named(run_auber):
    code, _, err = run_auber("prune", "--model", "x")
    assert code == 2
    assert "--out" in err
