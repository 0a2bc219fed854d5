from __future__ import annotations

import itertools
import time

import torch

from auber.bench.clock import each_seconds, timed

CPU = torch.device("cpu")


def test_a_call_is_timed_and_its_result_kept():
    result, seconds = timed(lambda: time.sleep(0.01) or "done", CPU)
    assert result == "done"
    assert 0.01 <= seconds < 0.5


def test_no_call_begins_after_the_limit_but_the_first():
    assert len(each_seconds([lambda: time.sleep(0.01)] * 3, CPU, 0.001)) == 1
    assert 2 <= len(each_seconds(itertools.repeat(lambda: time.sleep(0.01)), CPU, 0.05)) <= 5
    assert len(each_seconds([lambda: None] * 3, CPU, 10)) == 3
