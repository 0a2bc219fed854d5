from __future__ import annotations

import itertools

import pytest
import torch

from auber.bench import clock as bench_clock
from auber.bench.clock import each_seconds, timed
from tests.clocks import set_clock

CPU = torch.device("cpu")


@pytest.fixture
def clock(monkeypatch):
    return set_clock(monkeypatch, bench_clock)


def test_a_call_is_timed_and_its_result_kept(clock):
    assert timed(clock.takes(0.25, "done"), CPU) == ("done", 0.25)


def test_a_device_that_is_handed_its_work_is_waited_for(clock, monkeypatch):
    monkeypatch.setattr(torch.mps, "synchronize", clock.takes(2.0))
    assert timed(clock.takes(0.25, "done"), torch.device("mps")) == ("done", 2.25), (
        "not for what came before"
    )


def test_no_call_begins_after_the_limit_but_the_first(clock):
    assert each_seconds([clock.takes(0.5)] * 3, CPU, 0.25) == [0.5]
    assert each_seconds(itertools.repeat(clock.takes(0.5)), CPU, 1.25) == [0.5] * 3
    assert each_seconds([clock.takes(0.5)] * 3, CPU, 10) == [0.5] * 3
