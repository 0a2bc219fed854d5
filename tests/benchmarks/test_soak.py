"""A short version of each drill."""

from __future__ import annotations

import pytest

from benchmarks.soak import __main__ as soak
from benchmarks.soak import faults, load
from benchmarks.soak.job import Job

DISKS = (faults.fill_disks, faults.close_disks)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return Job(tmp_path_factory.mktemp("soak"), is_quick=True)


def test_killed_jobs_end_like_an_unbroken_one(job):
    found = faults.kill_runs(job, 2)
    assert sum(found["phases"].values()) == 2


@pytest.mark.parametrize(
    "drill", [drill for drill, _ in soak.JOB_DRILLS.values()][1:], ids=lambda drill: drill.__name__
)
def test_faults(drill, job):
    if drill in DISKS and not faults.can_mount():
        pytest.skip("mounting a small disk takes rights that this process does not have")
    drill(job, 2 if drill in (faults.stop_runs, faults.limit_files) else 1)


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
