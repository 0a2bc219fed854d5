"""Calls timed side by side: in every round each of them once, in turning order, so that a drift meets all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from auber.training.ratio import FEWEST_ROUNDS, Limits

Call = Callable[[], object]
Timer = Callable[[Call], float]  # from a call to its seconds

_WARM_UP_ROUNDS = 3


def make_timer(device: torch.device) -> Timer:
    """The clock of a device: a GPU's own where it has one, since the host only hands it its work."""
    return {"cuda": _cuda_seconds, "mps": _mps_seconds}.get(device.type, _host_seconds)


def side_by_side(
    calls: Sequence[Call],
    timer: Timer,
    limits: Limits,
    report: Callable[[int], None] = lambda done: None,
) -> list[list[float]]:
    """The seconds of each call, one for every round after the warm-up; `report` hears the rounds done."""
    for _ in range(_WARM_UP_ROUNDS):
        for call in calls:
            timer(call)
    seconds: list[list[float]] = [[] for _ in calls]
    started = time.perf_counter()
    for done in range(limits.repeats):
        if done >= FEWEST_ROUNDS and time.perf_counter() - started >= limits.seconds:
            break
        places = range(len(calls)) if done % 2 == 0 else reversed(range(len(calls)))
        for place in places:
            seconds[place].append(timer(calls[place]))
        report(done + 1)
    return seconds


def _host_seconds(call: Call) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _mps_seconds(call: Call) -> float:
    torch.mps.synchronize()
    started = time.perf_counter()
    call()
    torch.mps.synchronize()
    return time.perf_counter() - started


def _cuda_seconds(call: Call) -> float:
    cuda: Any = torch.cuda  # whose events have no types in some versions of torch
    begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / 1000  # from milliseconds
