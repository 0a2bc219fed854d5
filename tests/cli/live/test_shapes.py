from __future__ import annotations

import json

import pytest

from auber.cli.live import shapes
from auber.errors import RunError
from tests.cli.live.folders import NOW, RESULT


def test_the_first_misfit_is_named():
    assert shapes.find_misfit(RESULT, shapes.RESULT) is None
    assert shapes.find_misfit({**RESULT, "heads": 3}, shapes.RESULT) == "heads.removed"
    assert shapes.find_misfit({}, {"a.b": shapes.optional(shapes.is_text)}) is None


def test_a_file_of_another_shape_is_refused_and_one_that_is_not_whole_is_waited_for(tmp_path):
    path = tmp_path / "result.json"
    assert shapes.read_shaped(path, shapes.RESULT) is None
    path.write_text(json.dumps(RESULT)[:-1])
    assert shapes.read_shaped(path, shapes.RESULT) is None
    path.write_text(json.dumps(RESULT))
    assert shapes.read_shaped(path, shapes.RESULT) == RESULT
    path.write_text(json.dumps({**RESULT, "gap": "wide"}))
    message = (
        r"result.json: 'gap' must be what a run writes there, found something else; the file is damaged, put a copy of it back or "
        r"make the run again$"
    )
    with pytest.raises(RunError, match=message):
        shapes.read_shaped(path, shapes.RESULT)


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (shapes.is_number, [0, -1.5, 1e14], [True, "1", None, float("nan"), float("inf"), 10**400]),
        (shapes.is_count, [0, 7], [-1, 1.0, True, 10**400]),
        (shapes.is_text, ["", "a b"], ["\x1b", "\n", 3]),
        (shapes.is_heads, [[], [0, 3]], [[-1], ["0"], {}, [0] * 10_001]),
        (shapes.is_plan, [{}, {"0": [1]}], [[], {"0": 1}]),
        (shapes.is_numbers, [{}, {"a": 1.0}], [[], {"a": "1"}]),
    ],
)
def test_checks(check, good, bad):
    assert all(map(check, good))
    assert not any(map(check, bad))


@pytest.mark.parametrize(
    ("changes", "is_told"),
    [
        ({}, True),
        ({"layers": 10**9}, False),
        ({"heads_per_layer": 5_000}, False),
        ({"time": None}, False),
    ],
)
def test_a_plan_of_more_than_can_be_drawn_is_no_event(changes, is_told):
    event = {
        "time": NOW,
        "event": "planned",
        "stages": ["first"],
        "layers": 3,
        "heads_per_layer": 4,
        **changes,
    }
    assert shapes.is_event(event) is is_told


def test_kinds_of_events_that_are_not_known_pass():
    assert shapes.is_event({"time": NOW, "event": "something new", "stages": 3})
