"""`auber finetune` and `auber prune`."""

from __future__ import annotations

import json
import re

import pytest

import auber
from auber.config import make_config
from auber.data.generated import make_agreement
from tests.cli.conftest import SMALL
from tests.small import small_start


def test_finetune_then_prune(run_auber, files, own_rows, tmp_path):
    tuned, pruned = tmp_path / "tuned", tmp_path / "pruned"
    code, out, _ = run_auber(
        "finetune", "--model", files / "model", *own_rows, "--out", tuned, *SMALL, "--quiet",
        "--track", "tensorboard", "--name", "films",
    )  # fmt: skip
    assert code == 0
    assert json.loads((tuned / "result.json").read_text())["task"] == "films"
    assert any((tuned / "track").rglob("events.out.*"))
    assert "dev accuracy" in out

    command = ["prune", "--model", tuned, *own_rows, "--out", pruned, *SMALL]
    code, out, err = run_auber(*command, "--json")
    assert code == 0
    result = json.loads(out)
    assert (result["method"], result["model"]) == ("auber", "model")
    assert result["command"].startswith(
        "auber prune --model tuned --train train.csv --dev dev.csv --text sentence"
    )
    assert "layer 0: searching" in err

    code, out, err = run_auber(*command, "--resume")
    assert code == 0
    assert "is complete: nothing to do" in err
    assert f"model: {pruned / 'model'}" in out

    code, out, err = run_auber(
        "prune", "--model", tuned, *own_rows, "--out", tmp_path / "random", *SMALL, "--json",
        "--method", "random", "--heads-from", pruned, "--track", "tensorboard",
    )  # fmt: skip
    assert code == 0, err
    assert json.loads(out)["heads"]["removed"] == result["heads"]["removed"]
    assert any((tmp_path / "random" / "track").rglob("events.out.*"))


def test_quiet_shows_warnings(run_auber, files, tmp_path, caplog):
    rows = ["--train", files / "train.csv", "--dev", files / "train.csv"]
    code, _, err = run_auber(
        "finetune", "--model", files / "model", *rows, "--text", "sentence", "--label", "good",
        "--out", tmp_path / "run", *SMALL, "--quiet",
    )  # fmt: skip
    assert (code, err) == (0, "")
    warning = r"(\d+) of \1 dev rows are also in train, "
    assert any(re.match(warning, message) for message in caplog.messages)


def test_a_stopped_run_and_auber_watch_name_the_same_command(
    run_auber, files, own_rows, tmp_path, monkeypatch
):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("auber.run.folder.Run.finish_stage", stop)
    run = tmp_path / "run"
    code, _, err = run_auber(
        "finetune", "--model", files / "model", *own_rows, "--out", run, *SMALL, "--quiet"
    )
    command = err.partition("continue with: ")[2].strip()
    assert (code, f"--out {run} " in command) == (130, True)
    code, out, _ = run_auber("watch", run, "--json")
    assert (code, json.loads(out)["resume"]) == (1, command)


def test_a_target_size(run_auber, files, own_rows, tmp_path):
    command = ["prune", "--model", files / "model", *own_rows, *SMALL, "--method", "fisher"]
    code, out, err = run_auber(*command, "--keep", "0.6", "--out", tmp_path / "run", "--quiet")
    assert code == 0, err
    assert re.search(
        r"^\d+ of \d+ heads and \d+ of \d+ neurons removed; [\d.]+ % of the multiply-adds \(rows "
        r"of \d+ tokens\) and [\d.]+ % of the parameters remain$",
        out,
        re.MULTILINE,
    )
    even = (*command, "--keep", "0.9", "--even", "--out", tmp_path / "even", "--json", "--quiet")
    code, out, err = run_auber(*even)
    assert code == 0, err
    assert json.loads(out)["plan"]["heads"] == {}
    for options, message in (
        (
            ["--units", "heads", "--method", "auber"],
            "auber: --units goes with --keep; add it, such as --keep 0.5\n",
        ),
        (
            ["--even", "--heads", "2"],
            "auber: --even goes with --keep; add it, such as --keep 0.5\n",
        ),
        (
            ["--units", "heads"],  # half of the multiply-adds
            "auber: --keep must be at least 0.5148 (one head and all neurons stay in each layer), "
            "found 0.5; raise it, or add --units both\n",
        ),
        (
            ["--keep", "0.5", "--even", "--units", "both"],
            "auber: --even removes neurons only, found --units both; leave it out\n",
        ),
        (
            ["--keep", "2"],
            "auber: --keep must be a share of the encoder's multiply-adds, above 0 and at most 1, "
            "found '2'; give one such as 0.5\n",
        ),
    ):
        code, _, err = run_auber(*command, *options, "--out", tmp_path / "other")
        assert (code, err) == (2, message)
    assert not (tmp_path / "other").exists()


def test_several_sizes_and_rows_set_aside(run_auber, files, own_rows, tmp_path):
    run = tmp_path / "run"
    train = tmp_path / "train.csv"
    lines = [f"the {'key' if i % 2 else 'keys'} is red {i},{i % 2}" for i in range(40)]
    train.write_text("\n".join(["sentence,good", *lines]))
    columns = own_rows[own_rows.index("--text") :]
    command = ["prune", "--model", files / "model", "--train", train, *columns, *SMALL]
    code, out, err = run_auber(*command, "--method", "fisher", "--keep", "0.6,0.8", "--out", run)
    assert code == 0, err
    result = json.loads((run / "result.json").read_text())
    aside, total = result["rows"]["dev"], sum(result["rows"].values())
    assert aside == round(total / 5)
    assert f"{aside} of the {total} rows of {train} are set aside to evaluate on (dev), " in err
    lines = out.splitlines()
    assert [line.partition(":")[0] for line in lines[-5:]] == [
        "models/0.8",
        "models/0.6",
        lines[-3].partition(":")[0],
        "model",
        "next",
    ]
    assert re.fullmatch(
        r"With \d+ % of the multiply-adds and [\d,.]+( M)? parameters \(unpruned: [\d,.]+( M)?\), "
        rf"dev accuracy is [\d.]+ \(unpruned: [\d.]+\) on {aside} rows, and a row of \d+ tokens "
        r"takes [\d.]+ ms \(unpruned: [\d.]+ ms\) on this CPU",
        lines[-3],
    )
    assert lines[-2] == f"model: {run / 'model'} (that of models/0.6)"
    code, out, err = run_auber("evaluate", run / "models" / "0.8", "--train", train, *columns)
    assert code == 0, err
    score = 100 * result["sizes"][0]["dev"]["score"]
    assert out.startswith(f"dev accuracy {score:.2f}, ")
    tolerance = ("--method", "fisher", "--tolerance", "1", "--out", tmp_path / "other")
    code, _, err = run_auber(*command, *tolerance)
    assert (code, (tmp_path / "other").exists()) == (2, False)
    assert "--tolerance 1 needs 300 rows held out of train, and that is more than half of" in err


@pytest.fixture(scope="module")
def ranker(tmp_path_factory):
    """The folder of a model with one output, and pairs without labels."""
    folder = tmp_path_factory.mktemp("ranker")
    auber.save(*small_start(num_labels=1), folder / "model")
    texts = make_agreement(0, 200, 24).train.first
    pairs = [f'the key {row // 5},"{text}",{row % 2}\n' for row, text in enumerate(texts)]
    (folder / "pairs.csv").write_text("query,passage,label\n" + "".join(pairs))
    return folder


def test_texts_without_labels(run_auber, ranker, tmp_path):
    command = ["prune", "--model", ranker / "model", "--text", "query,passage", *SMALL]
    command += ["--texts", ranker / "pairs.csv", "--group", "query"]
    code, out, err = run_auber(
        *command, "--method", "fisher", "--keep", "0.8", "--out", tmp_path / "run"
    )
    assert code == 0, err
    assert re.search(r"^dev spearman with the unpruned model -?[\d.]+, train ", out, re.MULTILINE)
    orders = r"within 8 groups: same first row in [\d.]+ %, NDCG@10 [\d.]+ \(a tenth below [\d.]+\)"
    assert re.search(orders, out)
    assert "accuracy" not in out
    code, _, err = run_auber("report", tmp_path / "run")
    assert code == 0, err
    page = (tmp_path / "run" / "report" / "index.html").read_text()
    assert re.search(orders, page)
    assert "Without labels, dev and train are the agreement with the unpruned model." in page


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--label", "label"],
            "--texts and --label exclude each other: the unpruned model's answers are the labels; "
            "leave one out",
        ),
        (
            ["--train", "pairs.csv"],
            "--texts and --train exclude each other: the unpruned model's answers are the labels; "
            "leave one out",
        ),
        (
            ["--teacher"],
            "--teacher goes with labels, and with --texts the unpruned model is the only teacher; "
            "leave it out",
        ),
        (
            ["--group", "topic"],
            "{pairs}: Unknown column 'topic'. Known: label, passage, query; name it with --group",
        ),
    ],
)
def test_what_texts_exclude(run_auber, ranker, tmp_path, options, message):
    pairs = ranker / "pairs.csv"
    code, _, err = run_auber(
        "prune", "--model", ranker / "model", "--texts", pairs, "--text", "query,passage",
        *options, "--out", tmp_path / "run",
    )  # fmt: skip
    assert (code, err) == (2, f"auber: {message.format(pairs=pairs)}\n")


def test_a_group_needs_texts(run_auber, files, own_rows, tmp_path):
    command = ["prune", "--model", files / "model", *own_rows, "--out", tmp_path / "run"]
    code, _, err = run_auber(*command, "--group", "good")
    message = "auber: --group goes with --texts; add --texts FILE, or leave it out\n"
    assert (code, err) == (2, message)


def _teaching(config):
    return {key: value for key, value in config.items() if key.startswith("teacher.")}


def test_a_teacher_beside_labels(run_auber, files, own_rows, tmp_path):
    command = ["prune", "--model", files / "model", *own_rows, *SMALL, "--method", "fisher"]
    command += ["--keep", "0.8", "--teacher"]
    code, out, err = run_auber(*command, "--out", tmp_path / "run", "--json", "--quiet")
    assert code == 0, err
    assert _teaching(json.loads(out)["config"]) == {
        **_teaching(make_config("default", task=None).flat()),
        "teacher.below": 1.0,
    }
