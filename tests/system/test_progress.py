from __future__ import annotations

import logging

import pytest

import auber
from auber.system.progress import LogProgress, Progress
from tests.small import small_config, small_start, small_task


def test_the_share_counts_work():
    progress = Progress()
    assert progress.share is None, "nothing is planned"
    progress.plan([1.0] * 4)
    progress.begin("first", 2)
    progress.step(1)
    assert progress.share == 0.125
    progress.plan([10.0, 60.0, 10.0, 20.0])
    progress.begin("first", 1)
    progress.end()
    progress.begin("second", 4)
    progress.step(3)
    assert progress.share == pytest.approx(0.55)
    progress.end()
    progress.skip(1)
    assert (progress.finished, progress.planned) == (3, 4)
    assert progress.share == pytest.approx(70 / 90)
    progress.end()
    assert progress.share == 1
    progress.begin("one too many", 1)
    progress.step(1)
    assert progress.share == 1
    progress.plan([0.0, 0.0])
    assert progress.share is None, "there is no work"


def test_the_time_left_is_that_of_all_stages_by_the_pace_since_the_first_step():
    now = [0.0]
    progress = Progress(timer=lambda: now[0])
    progress.plan([100.0, 300.0, 500.0])
    progress.begin("first tuning", 50)
    now[0] = 60.0  # imports
    progress.step(1)
    assert progress.seconds_left is None
    now[0] = 70.0
    progress.step(6)
    assert progress.seconds_left == pytest.approx(10 / 10 * (900 - 12))
    progress.step(50)
    progress.end()
    progress.skip(1)
    assert progress.seconds_left == pytest.approx(10 / 98 * 500), "skipped stages take no time"


def test_one_command_has_one_bar():
    now = [0.0]
    progress = Progress(timer=lambda: now[0])
    progress.part(0.0, 0.4)
    progress.plan([1.0, 3.0])
    progress.begin("tuning", 10)
    progress.step(0)
    now[0] = 10.0
    progress.end()
    assert progress.share == pytest.approx(0.1)
    assert progress.seconds_left == pytest.approx(90)
    progress.end()
    progress.part(0.4, 1.0)
    assert progress.share == pytest.approx(0.4)
    progress.plan([8.0, 1.0, 1.0])
    progress.skip(1)
    assert progress.share == pytest.approx(0.4), "the bar does not begin again"
    now[0] = 70.0
    progress.begin("pruning", 4)
    progress.step(4)
    assert progress.share == pytest.approx(0.7)
    assert progress.seconds_left == pytest.approx(30), "by the pace of all parts"


def test_a_log_has_a_line_for_each_stage_and_every_half_minute(caplog):
    caplog.set_level(logging.INFO, "auber.system.progress")
    now = [0.0]
    progress = LogProgress(timer=lambda: now[0])
    now[0] = 31.0
    progress.tick()
    progress.plan([1.0] * 4)
    progress.skip(1)
    progress.say("5 rows are cut")
    progress.begin("training gates", 100)
    for second in range(0, 100, 10):
        now[0] = 31.0 + second
        progress.step(second)
    progress.end()
    for _ in range(10):
        now[0] += 5.0
        progress.tick()
    assert caplog.messages == [
        "working",
        "5 rows are cut",
        "training gates: 30 of 100 steps (10 % of the run, about 4 min left)",
        "training gates: 60 of 100 steps (20 % of the run, about 4 min left)",
        "training gates: 90 of 100 steps (30 % of the run, about 4 min left)",
        "training gates: 90 s (33 % of the run, about 3 min left)",
        "working (33 % of the run, about 4 min left)",
    ]


def test_a_run_without_a_listener_is_logged(caplog):
    caplog.set_level(logging.INFO, "auber")
    model, tokenizer = small_start()
    auber.prune(
        model,
        tokenizer,
        task=small_task(),
        method="random",
        heads=2,
        config=small_config(layer__epochs=0),
    )
    assert [message.partition(":")[0] for message in caplog.messages] == [
        "drawing units",
        "last tuning",
        "evaluating",
    ]
    assert caplog.messages[-1].endswith(" s (100 % of the run)")
