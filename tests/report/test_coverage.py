from __future__ import annotations

from auber.report.coverage import Coverage, cover


def key(task, method, seed, draw=0):
    return ("m", "seen", task, method, seed, draw)


WANTED = [
    key("rte", "auber", 0),
    *(key("rte", "random", 0, draw) for draw in (0, 1)),
    key("rte", "auber", 1),
]


def test_nothing_is_wanted():
    assert cover([], {key("rte", "auber", 0)}) is None


def test_everything_is_there():
    found = cover(WANTED, {*WANTED, key("rte", "greedy", 0)})
    assert found == Coverage(2, 2, ())
    assert found.label is None


def test_what_is_missing_is_named():
    found = cover(WANTED, {key("rte", "auber", 0), key("rte", "random", 0, 0)})
    assert found == Coverage(2, 0, ("rte, seed 0: random (draw 1)", "rte, seed 1: everything"))
    assert found.label == "incomplete: 0 of 2 blocks so far"
    assert cover(WANTED, {key("rte", "auber", 0), key("rte", "auber", 1)}).missing == (
        "rte, seed 0: random",
    )
