"""Searches that are paid for the time that heads take."""

from __future__ import annotations

import pytest

from auber.errors import ConfigError
from auber.run import steps
from auber.run.files import read_json
from auber.training.latency import Saving
from auber.training.timing import Ratio
from tests.run.test_fold_models import cut_and_resumed, prune, searches

PAID = {"reward__head": 0.0, "reward__latency": 0.5, "reward__latency_rows": 3}
SEEN = {"protocol": "seen", "reward__measure": "metric"}


class Clock:
    """Measures what it is told."""

    def __init__(self, monkeypatch, percent):
        self.asked = []
        saved = percent * 6 / 100  # of the time of six heads
        ratio = Ratio(1 / (1 - saved), 1.01, 2.0) if percent else Ratio(1.0, 0.9, 1.1)
        self.found = Saving(6, 3, 24, ratio)
        monkeypatch.setattr(steps, "measure_saving", self)

    def __call__(self, model, hardware, rows, length, on_round):
        self.asked.append((rows, length))
        return self.found


@pytest.mark.parametrize("protocol", [{}, SEEN], ids=["crossfit", "seen"])
def test_a_head_pays_for_what_it_saves(monkeypatch, tmp_path, protocol):
    clock = Clock(monkeypatch, percent=2.0)
    timed = prune(tmp_path / "timed", **{**PAID, **protocol})
    paid = prune(
        tmp_path / "paid", **{**PAID, **protocol, "reward__latency": 0.0, "reward__head": 1.0}
    )
    assert clock.asked == [(3, 24)], "nothing is measured where it is worth nothing"
    assert timed.plan == paid.plan
    assert timed.plan.num_removed > 0
    ours, theirs = searches(tmp_path / "timed"), searches(tmp_path / "paid")
    assert [search["time_pay"] for search in ours] == pytest.approx([1.0] * 3)
    assert [search["best_score"] for search in ours] == [search["best_score"] for search in theirs]
    stage = read_json(tmp_path / "timed" / "stages" / "timing.json")
    assert stage["timing"] == clock.found.to_json()
    assert timed.result["cost"]["seconds"]["timing"] == stage["seconds"]
    assert "timing" not in paid.result["cost"]["seconds"]


def test_time_that_cannot_be_told_from_noise_pays_nothing(monkeypatch, tmp_path):
    Clock(monkeypatch, percent=0.0)
    timed = prune(tmp_path / "timed", **PAID)
    free = prune(tmp_path / "free", reward__head=0.0)
    assert timed.plan == free.plan
    assert not any("time_pay" in search for search in searches(tmp_path / "timed"))


@pytest.mark.parametrize("cut", ["timing", "layer-01"])
def test_a_run_that_was_cut_goes_on_by_the_number_it_has(monkeypatch, tmp_path, cut):
    whole = Clock(monkeypatch, percent=2.0)
    unbroken = prune(tmp_path / "unbroken", **PAID)
    assert len(whole.asked) == 1
    clock = Clock(monkeypatch, percent=2.0)
    resumed = cut_and_resumed(monkeypatch, tmp_path / "cut", cut, **PAID)
    assert len(clock.asked) == (2 if cut == "timing" else 1), (
        "what was written is not measured again"
    )
    assert resumed.plan == unbroken.plan


def test_where_nothing_can_go_nothing_is_paid(monkeypatch, tmp_path):
    clock = Clock(monkeypatch, percent=2.0)
    clock.found = None
    prune(tmp_path / "run", **PAID)
    assert len(clock.asked) == 1
    assert not any("time_pay" in search for search in searches(tmp_path / "run"))
    assert read_json(tmp_path / "run" / "stages" / "timing.json")["timing"] is None


@pytest.mark.parametrize("method", ["original+tuning", "michel"])
def test_only_searches_are_paid(monkeypatch, tmp_path, method):
    clock = Clock(monkeypatch, percent=2.0)
    prune(tmp_path / "run", method, heads=None if method == "original+tuning" else 3, **PAID)
    assert clock.asked == []


def test_it_is_measured_for_real(tmp_path):
    outcome = prune(tmp_path / "run", **PAID)
    stage = read_json(tmp_path / "run" / "stages" / "timing.json")
    assert stage["timing"]["heads"] == 6
    assert (
        stage["timing"]["ratio"]["low"]
        <= stage["timing"]["ratio"]["median"]
        <= stage["timing"]["ratio"]["high"]
    )
    assert outcome.result["config"]["reward.latency"] == 0.5


def test_processes_of_a_group_have_no_clock_in_common(monkeypatch, tmp_path):
    monkeypatch.setenv("WORLD_SIZE", "2")
    message = (
        "^reward.latency must be 0 in a group of 2 processes, each of which measures another time, found 0.5; start one process, "
        "or give reward.head$"
    )
    with pytest.raises(ConfigError, match=message):
        prune(tmp_path / "run", **PAID)
    assert not (tmp_path / "run").exists()
