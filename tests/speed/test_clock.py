from __future__ import annotations

import time

import pytest
import torch

from auber.speed.clock import make_timer, side_by_side
from auber.speed.request import Limits

CPU = torch.device("cpu")


def test_calls_take_turns():
    made = []
    done = []
    calls = [lambda: made.append("a"), lambda: made.append("b")]
    seconds = side_by_side(calls, make_timer(CPU), Limits(repeats=8), done.append)
    assert "".join(made) == "ababab" + "abba" * 4  # the warm-up, then the rounds
    assert [len(each) for each in seconds] == [8, 8]
    assert done == list(range(1, 9))


def test_each_call_gets_its_own_time():
    short, long = side_by_side(
        [lambda: time.sleep(0.001), lambda: time.sleep(0.01)], make_timer(CPU), Limits(repeats=6)
    )
    assert max(short) >= 0.001
    assert min(long) >= 0.01
    assert min(short) < min(long)


def test_the_time_is_bounded_but_the_fewest_rounds_are_made():
    seconds = side_by_side([lambda: time.sleep(0.002)], make_timer(CPU), Limits(repeats=1000, seconds=0.001))
    assert len(seconds[0]) == 6


@pytest.mark.gpu
def test_a_gpu_is_timed_until_it_is_done():
    device = torch.device("cuda")
    small, large = (torch.randn(size, size, device=device) for size in (64, 8192))
    calls = [lambda: small @ small, lambda: large @ large]
    short, long = side_by_side(calls, make_timer(device), Limits(repeats=6))
    # 1.1e12 operations: no GPU does them in the time that handing them over takes
    assert min(long) > 5e-3
    assert min(short) < 1e-3


def test_a_device_that_is_handed_its_work_is_waited_for(monkeypatch):
    done = []
    monkeypatch.setattr(torch.mps, "synchronize", lambda: done.append("wait") or time.sleep(0.002))
    assert make_timer(torch.device("mps"))(lambda: done.append("call")) >= 0.002
    assert done == ["wait", "call", "wait"]
