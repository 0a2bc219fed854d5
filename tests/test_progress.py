from __future__ import annotations

import pytest

from auber.progress import Several, Silent, describe_seconds


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


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (99, "99 s"), (100, "2 min"), (5999, "100 min"), (7200, "2.0 h")]
)
def test_seconds_in_words(seconds, words):
    assert describe_seconds(seconds) == words
