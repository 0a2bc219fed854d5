"""A short version of each drill."""

from __future__ import annotations

import json

import pytest

from auber.system.records import read
from benchmarks.common import ROOT
from benchmarks.soak import __main__ as soak
from benchmarks.soak import faults, load
from benchmarks.soak.job import Job, outcome_of
from benchmarks.soak.record import Soak, make_table

DISKS = (faults.fill_disks, faults.close_disks)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return Job(tmp_path_factory.mktemp("soak"), is_quick=True)


def test_another_outcome_is_noticed(job, monkeypatch):
    monkeypatch.setattr(job, "outcome", {**job.outcome, "gap": 2.0})
    with pytest.raises(AssertionError, match=r"\['gap'\] differ from the unbroken job's"):
        job.finish(job.unbroken)


def test_killed_jobs_end_like_an_unbroken_one(job):
    found = faults.kill_runs(job, 2)
    assert sum(found["phases"].values()) == 2


@pytest.mark.parametrize(
    "drill", [drill for drill, _ in soak.ON_JOB.values()][1:], ids=lambda drill: drill.__name__
)
def test_faults(drill, job):
    if drill in DISKS and not faults.can_mount():
        pytest.skip("mounting a small disk takes rights that this process does not have")
    drill(job, 2 if drill in (faults.stop_runs, faults.limit_files) else 1)


def test_an_outcome_has_weights_export_and_tables(job):
    found = outcome_of(job.unbroken)
    assert {"weights", "dense/model.safetensors", "tables/table2.csv"} <= found.keys()
    assert found["scratch files"] == []


def test_a_study_of_many_runs(tmp_path):
    found = load.study_here(tmp_path, 24)
    assert found["last_quarter_mb"] > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_study_on_ray_with_workers_killed(tmp_path):
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    assert load.study_on_ray(tmp_path, 9, kill_every=1.0)["workers_killed"] >= 1


def test_a_ledger_opens_quickly(tmp_path):
    assert load.open_ledger(tmp_path, 20_000)["file_mb"] > 1


def test_a_csv_takes_little_more_than_its_rows(tmp_path):
    found = load.read_rows(tmp_path, 30_000)
    assert found["bytes_a_row"] < found["most_bytes_a_row"]


def test_a_failed_drill_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    def fail(folder, times):
        raise AssertionError(f"{times} runs")

    monkeypatch.setattr(soak, "ON_LOAD", {"csv": (fail, 7), "ledger": (load.open_ledger, 100)})
    out = tmp_path / "soak.json"
    with pytest.raises(SystemExit, match="1 drills failed"):
        soak.main(["--out", str(out), "--only", "csv", "ledger"])
    assert read(Soak, out, "").drills["ledger"].count == 100
    assert "AssertionError: 7 runs" in capsys.readouterr().err


def test_the_kept_figures_are_shown():
    table = make_table(read(Soak, ROOT / "results" / "soak.json", ""))
    kills = table.set_index("drill").loc["killed at random moments (SIGKILL), resumed"]
    raw = json.loads((ROOT / "results" / "soak.json").read_text())["drills"]["kills"]
    assert kills["times"] == str(raw["count"])
    assert "in search" in kills["more"]
