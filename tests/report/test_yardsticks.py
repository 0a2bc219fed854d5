"""Results of other commands are read back, and damage is named."""

from __future__ import annotations

import json

import pytest

from auber.errors import RunError
from auber.report.regrets import regret_figure, regret_table
from auber.report.results_file import read_results_file
from auber.report.speeds import read_speed, speed_tables
from tests.report.made import make_regret, make_speed


@pytest.fixture
def regret(tmp_path):
    file = tmp_path / "kept" / "regret.json"
    file.parent.mkdir()
    file.write_text(json.dumps(make_regret()))
    return file


@pytest.fixture
def speed(tmp_path):
    file = tmp_path / "speed.json"
    file.write_text(json.dumps(make_speed().to_json()))
    return file


def change(file, key, value):
    """The file with the entry at a dotted key replaced, or taken out for None."""
    content = json.loads(file.read_text())
    *path, last = key.split(".")
    place = content
    for name in path:
        place = place[int(name) if isinstance(place, list) else name]
    if value is None:
        del place[last]
    else:
        place[last] = value
    file.write_text(json.dumps(content))
    return read_results_file(file)


def test_speed_is_read_back_as_it_was_made(speed):
    assert read_speed(read_results_file(speed)).to_json() == make_speed().to_json()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format", 2, "^regret.json: format 1 can be read, found 2; measure it again"),
        ("seeds", "ten", "^regret.json: 'seeds' must be a whole number, found 'ten'"),
        ("panels.0.task", None, "^regret.json: panel 0: lacks 'task'"),
        ("panels.0.mean.paper.50.mean", None, "^regret.json: panel 0: lacks 'mean.paper.50.mean'"),
        (
            "panels.0.mean",
            {"<b>": {}},
            "^regret.json: a search must be a preset, greedy or random, found '<b>'",
        ),
    ],
)
def test_damage_to_regret_is_named(regret, key, value, message):
    with pytest.raises(RunError, match=message):
        regret_table(change(regret, key, value))


def test_damage_to_what_only_the_drawing_needs_is_named(regret):
    file = change(regret, "panels.0.layers", [])
    with pytest.raises(
        RunError,
        match=r"^regret.json: must be a result of 'auber regret', found damage \(ValueError",
    ):
        regret_figure(file)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format", 2, "^speed.json: format 1 can be read, found 2; measure it again"),
        ("runs", [], "^speed.json: must hold at least one run and one pair of times for each"),
        (
            "runs.0.pairs.1.batch",
            1.5,
            "^speed.json: run 0, pair 1: 'batch' must be a whole number, found 1.5",
        ),
        (
            "runs.0.parameters.unpruned",
            0,
            "^speed.json: run 0: 'parameters' of the unpruned model must be above 0, found 0",
        ),
        ("provenance.threads", None, "^speed.json: lacks 'provenance.threads'"),
    ],
)
def test_damage_to_speed_is_named(speed, key, value, message):
    with pytest.raises(RunError, match=message):
        speed_tables(change(speed, key, value))
