"""A small version of each drill on load."""

from __future__ import annotations

import pytest

from tests.soak import load
from tests.soak.limits import CSV, LEDGER


def test_a_study_of_many_runs_tells_each_once_and_holds_no_more_memory(tmp_path):
    figure = load.study_here(tmp_path, 30)
    assert figure.count == 30


@pytest.mark.timeout(600)
def test_a_study_on_ray_with_workers_killed_tells_each_run_once(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(load.ROOT))
    try:
        assert load.study_on_ray(tmp_path, 8, kill_every=1.0).details["workers_killed"] >= 1
    finally:
        ray.shutdown()


def test_a_ledger_opens_quickly(tmp_path):
    assert load.open_ledger(tmp_path, 20_000, LEDGER / 2).details["seconds_to_open"] < LEDGER / 2


def test_reading_a_csv_holds_little_more_than_its_rows(tmp_path):
    figure = load.read_rows(tmp_path, 30_000, CSV)
    assert figure.details["bytes_a_row"] < figure.details["most_bytes_a_row"]


def test_readers_take_or_refuse(tmp_path):
    figure = load.feed_readers(tmp_path, 1_500)
    assert figure.count >= 1_400
    assert figure.details["findings"] == 0
    assert figure.details["refused"] + figure.details["taken"] == figure.count
