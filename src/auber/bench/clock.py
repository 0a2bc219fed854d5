"""Seconds that count what the device did, not only what was asked of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

import torch

_Result = TypeVar("_Result")


def timed(call: Callable[[], _Result], device: torch.device) -> tuple[_Result, float]:
    """What a call returns and its seconds, the device idle before and after."""
    _synchronize(device)
    started = time.perf_counter()
    result = call()
    _synchronize(device)
    return result, time.perf_counter() - started


def each_seconds(
    calls: Iterable[Callable[[], object]], device: torch.device, most_seconds: float
) -> list[float]:
    """The time of each call that was begun before `most_seconds` had passed; the first always is."""
    seconds: list[float] = []
    for call in calls:
        if seconds and sum(seconds) >= most_seconds:
            break
        seconds.append(timed(call, device)[1])
    return seconds


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
