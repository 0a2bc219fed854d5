"""`auber study` as it is typed."""

from __future__ import annotations

import json

import pytest

from auber.study import read_study
from tests.study.tiny import QUICK, tiny_study


@pytest.fixture
def call(run_auber):
    """`auber study` with these arguments: (exit code, stdout, stderr)."""
    return lambda *arguments: run_auber("study", *arguments)


@pytest.fixture
def file(tmp_path):
    """The embedded default with one cheap method."""
    (tmp_path / "s.toml").write_text(tiny_study(methods=["original"], seeds=[0, 1]).to_toml())
    return tmp_path / "s.toml"


def test_plan_do_skip(call, file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agreement").mkdir()  # the embedded model is meant, whatever lies here
    code, out, _ = call(file, "--out", tmp_path / "o", "--dry-run")
    assert code == 0
    assert "4 runs: 4 missing." in out
    assert "4 open runs: not measured yet; at most 0 rewards and 12 tuning steps" in out
    assert not (tmp_path / "o").exists()

    code, out, err = call(file, "--out", tmp_path / "o", "--only", "seed=1")
    assert code == 0
    assert "[1/2] agreement seen seed 1 start: dev accuracy " in err
    assert "[2/2] agreement seen seed 1 original: dev accuracy " in err
    assert f"2 runs: 2 complete.   Next: auber report {tmp_path / 'o'}" in out
    assert read_study(tmp_path / "o" / "study.toml").seeds == (0, 1), (
        "the record is of the whole study"
    )

    code, out, _ = call(file, "--out", tmp_path / "o", "--dry-run")
    assert "4 runs: 2 complete, 2 missing." in out
    assert "2 open runs: about " in out
    code, out, _ = call(file, "--out", tmp_path / "o", "--dry-run", "--json")
    assert [run["state"] for run in json.loads(out)["runs"]] == [
        "missing",
        "missing",
        "complete",
        "complete",
    ]
    assert json.loads(out)["open"]["runs_not_measured"] == 0

    code, out, err = call(file, "--out", tmp_path / "o", "--seeds", "1", "--json", "--quiet")
    assert (code, err) == (0, "")
    runs = json.loads(out)["runs"]
    assert [(run["run"], run["state"]) for run in runs] == [
        ("start", "complete"),
        ("original", "complete"),
    ]
    assert runs[0]["dev"] == runs[1]["dev"]


def test_only_may_be_repeated_and_name_methods(call, tmp_path):
    study = tiny_study(methods=["auber", "random", "original"], seeds=[0, 1])
    (tmp_path / "s.toml").write_text(study.to_toml())
    only = ["--only", "seed=1", "--only", "method=original,method=random"]
    code, out, _ = call(tmp_path / "s.toml", "--out", tmp_path / "o", "--dry-run", "--json", *only)
    runs = [(run["seed"], run["run"]) for run in json.loads(out)["runs"]]
    assert (code, runs) == (0, [(1, "start"), (1, "auber"), (1, "random-0"), (1, "original")])
    _, out, _ = call(
        tmp_path / "s.toml",
        "--out",
        tmp_path / "o",
        "--dry-run",
        "--json",
        "--only",
        "method=original",
    )
    assert [run["run"] for run in json.loads(out)["runs"]] == ["start", "original"] * 2


def test_a_failure_is_told_and_the_exit_code_is_1(call, file, tmp_path, monkeypatch):
    from auber import api

    monkeypatch.setattr(api, "finetune", None)
    code, out, err = call(file, "--out", tmp_path / "o", "--seeds", "0")
    assert code == 1
    assert (
        "[1/2] agreement seen seed 0 start: failed: TypeError: 'NoneType' object is not callable"
        in err
    )
    assert "agreement seen seed 0 original: skipped: left out: 'start' has no result" in out
    assert "2 runs: 1 failed, 1 skipped." in out
    _, out, _ = call(file, "--out", tmp_path / "o", "--seeds", "0", "--dry-run")
    assert "failed: TypeError" in out


def test_the_plan_is_shown_even_where_the_model_cannot_be_read(call, file, tmp_path):
    code, out, _ = call(file, "--out", tmp_path / "o", "--dry-run", "--model", "./nowhere")
    assert code == 0
    assert (
        "4 open runs: not measured yet, and not counted: './nowhere': the model's size cannot be read"
        in out
    )


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        (
            "search.heads",
            2,
            "agreement seen auber: search.heads must be 0 under protocol seen, which tunes after each layer before the next is known, "
            "found 2; set protocol=crossfit",
        ),
        (
            "device",
            "cuda",
            "agreement seen start: device must be one that is here, found 'cuda' but torch sees no GPU",
        ),
    ],
)
def test_settings_that_no_run_can_have_are_said_first(
    call, tmp_path, monkeypatch, dry_run, setting, value, message
):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    study = tiny_study(methods=["auber"], settings={**QUICK, setting: value})
    (tmp_path / "s.toml").write_text(study.to_toml())
    code, out, err = call(tmp_path / "s.toml", "--out", tmp_path / "o", *dry_run)
    assert (code, out) == (2, "")
    assert err.startswith(f"auber: {message}")
    assert err.count("\n") == 1
    assert not (tmp_path / "o").exists()


def test_devices_are_those_of_the_nodes_where_ray_computes(call, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    study = tiny_study(methods=["original"], settings={**QUICK, "device": "cuda"})
    (tmp_path / "s.toml").write_text(study.to_toml())
    code, _, err = call(
        tmp_path / "s.toml", "--out", tmp_path / "o", "--dry-run", "--engine", "ray"
    )
    assert (code, err) == (0, "")


def test_a_stop_by_hand_says_how_to_go_on(call, file, tmp_path, monkeypatch):
    from auber import api

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "finetune", stop)
    code, _, err = call(file, "--out", tmp_path / "o")
    assert code == 130
    assert f"auber: stopped; go on with: auber study {file} --out {tmp_path / 'o'}" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "task=rte"], "auber: --only: Unknown task 'rte'. Known: agreement"),
        (
            ["--seeds", "0,0"],
            "auber: --seeds: seeds: each may be listed once, 0 is there more often",
        ),
        (
            ["--engine", "rays"],
            "auber: Unknown engine 'rays'. Did you mean 'ray'? Known: local, processes, ray",
        ),
        (
            ["--num-gpus", "1"],
            "auber: --num-gpus goes with --engine ray, found engine local; leave it out",
        ),
        (
            ["--engine", "ray", "--num-cpus", "-1"],
            "auber: --num-cpus must be a number from 0, found -1",
        ),
        (["--jobs", "0"], "auber: --jobs must be a whole number from 1, found 0"),
        (
            ["--data", "glue"],
            "auber: agreement: its rows are generated, found the data folder glue",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(call, file, tmp_path, arguments, message):
    code, out, err = call(file, "--out", tmp_path / "o", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(message)
    assert err.count("\n") == 1
    assert not (tmp_path / "o").exists()
