from __future__ import annotations

import json

import pytest

from auber import api
from auber.study.plan import read_study
from tests.study.tiny import tiny_study


@pytest.fixture
def call(run_auber, tmp_path):
    """Call `auber study` with some arguments; return (exit code, stdout, stderr)."""
    return lambda file, *more: run_auber("study", file, "--out", tmp_path / "o", *more)


@pytest.fixture
def file(tmp_path):
    """The generated model and task, with one cheap method."""
    (tmp_path / "s.toml").write_text(tiny_study(methods=["original"], seeds=[0, 1]).to_toml())
    return tmp_path / "s.toml"


def test_plan_do_and_skip(call, file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agreement").mkdir()  # not taken for the model of that name
    code, out, _ = call(file, "--dry-run")
    assert code == 0
    assert "4 runs: 4 missing." in out
    assert "4 runs to do: no estimate until one of their kind has finished" in out
    assert not (tmp_path / "o").exists()

    code, out, err = call(file, "--only", "seed=1")
    assert code == 0
    assert "[1/2] agreement seen seed 1 start: dev accuracy " in err
    assert "[2/2] agreement seen seed 1 original: dev accuracy " in err
    assert f"2 runs: 2 complete.   Next: auber report {tmp_path / 'o'}" in out
    assert read_study(tmp_path / "o" / "study.toml").seeds == (0, 1)

    code, out, _ = call(file, "--dry-run")
    assert "4 runs: 2 complete, 2 missing." in out
    assert "2 runs to do: about " in out
    code, out, _ = call(file, "--dry-run", "--json")
    found = [run["state"] for run in json.loads(out)["runs"]]
    assert found == ["missing", "missing", "complete", "complete"]
    assert json.loads(out)["open"]["runs_not_measured"] == 0

    code, out, err = call(file, "--seeds", "1", "--json", "--quiet")
    assert (code, err) == (0, "")
    runs = json.loads(out)["runs"]
    found = [(run["run"], run["state"]) for run in runs]
    assert found == [("start", "complete"), ("original", "complete")]
    assert runs[0]["dev"] == runs[1]["dev"]


def test_too_few_seeds_for_a_verdict_are_announced_first(call, tmp_path):
    study = tiny_study(methods=["original", "original+tuning"], seeds=[0, 1])
    (tmp_path / "two.toml").write_text(study.to_toml())
    _, out, _ = call(tmp_path / "two.toml", "--dry-run")
    assert out.splitlines()[-1] == (
        "warning: 2 seeds of 1 task cannot give a verdict, which takes at least 3 pairs of runs "
        "with the same task and seed; add seeds"
    )
    _, out, _ = call(tmp_path / "two.toml", "--dry-run", "--seeds", "0,1,2")
    assert "verdict" not in out


def test_a_failure_is_printed_and_the_exit_code_is_1(call, file, monkeypatch):
    monkeypatch.setattr(api, "finetune", None)
    code, out, err = call(file, "--seeds", "0")
    assert code == 1
    assert "[1/2] agreement seen seed 0 start: failed: TypeError: 'NoneType' object is not" in err
    assert "agreement seen seed 0 original: skipped: left out: 'start' has no result" in out
    assert "2 runs: 1 failed, 1 skipped." in out
    _, out, _ = call(file, "--seeds", "0", "--dry-run")
    assert "failed: TypeError" in out


def test_a_plan_without_the_model(call, file):
    code, out, _ = call(file, "--dry-run", "--model", "./nowhere")
    assert code == 0
    assert "not checked: ./nowhere: there is no such folder; give the one a model was saved" in out


def test_ctrl_c_prints_how_to_go_on(call, file, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "finetune", stop)
    code, _, err = call(file)
    assert code == 130
    assert f"auber: stopped; continue with: auber study {file} --out {tmp_path / 'o'}" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "task=rte"], "--only: Unknown task 'rte'. Known: agreement"),
        (["--num-gpus", "1"], "--num-gpus goes with --engine ray, found engine local; leave it"),
        (["--engine", "ray", "--num-cpus", "-1"], "--num-cpus must be a number from 0, found -1"),
        (["--data", "glue"], "agreement: its rows are generated, found the data folder glue"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(call, file, tmp_path, arguments, message):
    code, out, err = call(file, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"auber: {message}")
    assert err.count("\n") == 1
    assert not (tmp_path / "o").exists()
