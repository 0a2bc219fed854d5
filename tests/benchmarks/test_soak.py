"""A short version of each drill."""

from __future__ import annotations

import pytest

from benchmarks.soak import __main__ as soak
from benchmarks.soak import faults, load
from benchmarks.soak.job import HeadsJob, SizesJob

DISKS = (faults.fill_disks, faults.close_disks)


@pytest.fixture(scope="module")
def heads_job(tmp_path_factory):
    return HeadsJob(tmp_path_factory.mktemp("heads"), is_quick=True)


@pytest.fixture(scope="module")
def sizes_job(tmp_path_factory):
    return SizesJob(tmp_path_factory.mktemp("sizes"), is_quick=True)


def test_killed_jobs_end_like_an_unbroken_one(heads_job):
    found = faults.kill_runs(heads_job, 2)
    assert sum(found["phases"].values()) == 2


def test_killed_jobs_of_several_sizes_end_like_an_unbroken_one(sizes_job):
    found = faults.kill_runs(sizes_job, 4)
    assert sum(found["phases"].values()) == 4
    assert len(found["phases"]) >= 2, "kills in several phases"


def names(drills, *without):
    """Return the drills without kills."""
    return [name for name in drills if not name.endswith(("kills", *without))]


def run_drill(drill, job):
    if drill in DISKS and not faults.can_mount():
        pytest.skip("mounting a small disk takes rights that this process does not have")
    drill(job, 2 if drill in (faults.stop_runs, faults.limit_files) else 1)


@pytest.mark.parametrize("name", names(soak.HEADS_DRILLS))
def test_faults(name, heads_job):
    run_drill(soak.HEADS_DRILLS[name][0], heads_job)


# The others do not depend on what a run does.
@pytest.mark.parametrize("name", names(soak.SIZES_DRILLS, "starts", "versions", "read-only disks"))
def test_faults_of_runs_with_several_sizes(name, sizes_job):
    run_drill(soak.SIZES_DRILLS[name][0], sizes_job)


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
