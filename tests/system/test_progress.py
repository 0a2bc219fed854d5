from __future__ import annotations

import logging

import auber
from auber.system.progress import LogProgress, Progress
from tests.small import small_config, small_start, small_task


def test_the_share_counts_work():
    progress = Progress()
    assert progress.share is None, "nothing is planned"
    progress.plan(4)
    progress.begin("first", 2)
    progress.step(1)
    assert progress.share == 0.125, "without weights all stages count the same"
    progress.weigh([10.0, 60.0, 10.0, 20.0])
    progress.end()
    progress.begin("second", 4)
    progress.step(3)
    assert progress.share == 0.55
    progress.end()
    progress.skip(1)
    assert (progress.share, progress.finished, progress.planned) == (70 / 90, 2, 3)
    progress.end()
    assert progress.share == 1
    progress.begin("one too many", 1)
    progress.step(1)
    assert progress.share == 1
    progress.weigh([0.0, 0.0])
    assert progress.share is None, "there is no work"


def test_each_stage_is_logged_and_a_long_one_once_a_minute(caplog):
    caplog.set_level(logging.INFO, "auber.system.progress")
    now = [0.0]
    progress = LogProgress(timer=lambda: now[0])
    progress.plan(4)
    progress.skip(1)
    progress.say("5 rows are cut")
    progress.begin("training gates", 100)
    for second in range(0, 200, 10):
        now[0] = float(second)
        progress.step(second // 4)
    progress.end()
    assert caplog.messages == [
        "5 rows are cut",
        "training gates: 15 of 100 steps, about 6 min left",
        "training gates: 30 of 100 steps, about 5 min left",
        "training gates: 45 of 100 steps, about 4 min left",
        "training gates: 3 min (stage 1 of 3)",
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
    assert caplog.messages[-1].endswith(" s (stage 3 of 3)")
