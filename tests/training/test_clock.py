from __future__ import annotations

import pytest
import torch

from auber.training import clock as speed_clock
from auber.training.clock import make_timer, side_by_side
from auber.training.ratio import Limits
from tests.clocks import set_clock

CPU = torch.device("cpu")


@pytest.fixture
def clock(monkeypatch):
    return set_clock(monkeypatch, speed_clock)


def test_calls_take_turns():
    made = []
    done = []
    calls = [lambda: made.append("a"), lambda: made.append("b")]
    seconds = side_by_side(calls, make_timer(CPU), Limits(repeats=8), done.append)
    assert "".join(made) == "ababab" + "abba" * 4  # the warm-up, then the rounds
    assert [len(each) for each in seconds] == [8, 8]
    assert done == list(range(1, 9))


def test_each_call_gets_its_own_time(clock):
    calls = [clock.takes(0.5), clock.takes(2.0)]
    assert side_by_side(calls, make_timer(CPU), Limits(repeats=6)) == [[0.5] * 6, [2.0] * 6]


def test_the_time_is_bounded_but_the_fewest_rounds_are_made(clock):
    def rounds(seconds):
        return len(
            side_by_side(
                [clock.takes(0.5)], make_timer(CPU), Limits(repeats=1000, seconds=seconds)
            )[0]
        )

    assert rounds(0.25) == 6
    assert rounds(10) == 20, "the warm-up not counted"


@pytest.mark.gpu
def test_a_gpu_is_timed_until_it_is_done():
    device = torch.device("cuda")
    small, large = (torch.randn(size, size, device=device) for size in (64, 8192))
    calls = [lambda: small @ small, lambda: large @ large]
    short, long = side_by_side(calls, make_timer(device), Limits(repeats=6))
    # 1.1e12 operations: no GPU does them in the time that handing them over takes
    assert min(long) > 5e-3
    assert min(short) < 1e-3


def test_a_device_that_is_handed_its_work_is_waited_for(clock, monkeypatch):
    monkeypatch.setattr(torch.mps, "synchronize", clock.takes(2.0))
    assert make_timer(torch.device("mps"))(clock.takes(0.5)) == 2.5, "not for what came before"
