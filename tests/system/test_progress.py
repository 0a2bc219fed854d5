from __future__ import annotations

import logging

import pytest

import auber
from auber.system.progress import Logged, Several, Silent, Way, describe_seconds
from tests.small import small_config, small_start, small_task


class Notes:
    """Takes down every call."""

    def __init__(self, name, heard):
        self._name, self._heard = name, heard

    def __getattr__(self, call):
        return lambda *arguments: self._heard.append((self._name, call, *arguments))


def test_several_listeners_hear_the_same_in_order():
    heard = []
    several = Several(Notes("a", heard), Notes("b", heard))
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
        getattr(several, call)(*arguments)
    assert heard == [(name, *call) for call in calls for name in ("a", "b")]


def test_every_listener_of_the_package_hears_every_call():
    interface = {name for name in vars(Silent) if not name.startswith("_")}
    assert interface == {name for name in vars(Several) if not name.startswith("_")}


def test_the_way_counts_work_where_that_is_told():
    way = Way()
    assert way.share() is None, "nothing is planned"
    way.plan(4)
    assert way.share(0.5) == 0.125
    way.weigh([10.0, 60.0, 10.0, 20.0])
    way.end()
    assert way.share(0.75) == 0.55, (
        "three quarters of the longest stage are not those of a fourth of the run"
    )
    way.end()
    way.skip(1)
    assert (way.share(), way.finished, way.planned) == (70 / 90, 2, 3), "what comes next falls away"
    way.end()
    assert way.share() == 1
    assert way.share(1.0) == 1, "behind the last stage nothing comes"


def test_stages_without_any_work_have_no_share():
    way = Way()
    way.weigh([0.0, 0.0])
    assert way.share(0.5) is None


def test_the_log_hears_of_each_stage_and_once_a_minute_of_a_long_one(caplog):
    caplog.set_level(logging.INFO, "auber.system.progress")
    now = [0.0]
    progress = Logged(timer=lambda: now[0])
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


def test_a_run_that_nobody_listens_to_is_told_to_the_log(caplog):
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
        "drawing heads",
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
