from __future__ import annotations

import logging

import pytest

import auber
from auber.system.progress import LogProgress, Progress, describe_seconds
from tests.small import small_config, small_start, small_task


class Notes:
    """Records every call."""

    def __init__(self, name, heard):
        self._name, self._heard = name, heard

    def __getattr__(self, call):
        return lambda *arguments: self._heard.append((self._name, call, *arguments))


def test_every_listener_receives_every_call_in_order():
    heard = []
    progress = Progress(Notes("a", heard), Progress(Notes("b", heard)), object())
    calls = [
        ("plan", 3),
        ("weigh", [1.0, 5.0, 2.0]),
        ("skip", 1),
        ("begin", "first", 9),
        ("step", 4, "note"),
        ("record", 4, {"x/y": 1.0}),
        ("end",),
        ("say", "hello"),
    ]
    for call, *arguments in calls:
        getattr(progress, call)(*arguments)
    assert heard == [(name, *call) for call in calls for name in ("a", "b")]


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


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (99, "99 s"), (100, "2 min"), (5999, "100 min"), (7200, "2.0 h")],
)
def test_seconds_in_words(seconds, words):
    assert describe_seconds(seconds) == words
