"""Runs, models and results files of the first edition are read, and an interrupted run resumes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import auber
from tests.golden import runs

FIRST = Path(__file__).parents[1] / "fixtures" / "first-edition"
SETTINGS = {key: value for key, value in runs.SIZES.items() if not key.startswith("voita.")}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder that the first edition was run in."""
    shutil.copytree(runs.MODEL, tmp_path / "encoder")
    for name in ("train.csv", "dev.csv"):
        shutil.copy(runs.HERE / name, tmp_path)
    for name in ("finished", "interrupted"):
        shutil.copytree(FIRST / name, tmp_path / "runs" / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def result() -> dict:
    return json.loads((FIRST / "finished" / "result.json").read_text())


def test_a_finished_run_is_evaluated(folder, run_auber):
    rows = ("--train", "train.csv", "--dev", "dev.csv")
    code, out, errors = run_auber("evaluate", "runs/finished", *rows, "--json")
    assert code == 0, errors
    assert json.loads(out)["score"] == result()["dev"]["score"]


def test_a_finished_run_is_reported(folder, run_auber):
    code, _, errors = run_auber("report", "runs/finished")
    assert code == 0, errors
    assert "words" in (folder / "runs" / "finished" / "report" / "index.html").read_text()


def test_a_results_file_is_reported(folder, run_auber):
    code, _, errors = run_auber("report", FIRST / "results.json", "--out", "report")
    assert code == 0, errors
    assert "random" in (folder / "report" / "table2.md").read_text()


def test_a_saved_model_is_loaded():
    model = auber.load(FIRST / "model")
    tokens = auber.load_tokenizer(FIRST / "model")("the apples is rusty .", return_tensors="pt")
    assert model(**tokens).logits.shape == (1, 2)


def test_an_interrupted_run_resumes_to_the_same_bits(folder, run_auber):
    words = ["prune", "--model", "encoder", "--train", "train.csv", "--dev", "dev.csv"]
    words += ["--name", "words", "--preset", "paper", "--seed", "0", "--method", "auber"]
    for key, value in SETTINGS.items():
        words += ["--set", f"{key}={value}"]
    code, _, errors = run_auber(*words, "--out", "runs/interrupted", "--resume", "--quiet")
    if code:  # another version may refuse, in one line that says what to do
        assert code == 2
        assert len(errors.strip().splitlines()) == 1
        assert "--allow-upgrade" in errors
        return
    machine = json.loads(runs.RESULTS.read_text())["machine"]
    found, finished = (
        runs.comparable(runs.describe(run), machine)
        for run in (Path("runs/interrupted"), FIRST / "finished")
    )
    assert found == finished
