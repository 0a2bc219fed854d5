"""The records read every file of the first edition's runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from auber.errors import RunError
from auber.run.events import parse_event
from auber.run.records import RunIdentity, ScoreLine
from auber.run.result_record import ResultRecord
from auber.run.stage_record import StageRecord
from auber.system.records import parse, read

FIRST = Path(__file__).parents[1] / "fixtures" / "first-edition"


@pytest.mark.parametrize("name", ["finished", "interrupted"])
def test_every_file_is_read(name):
    folder = FIRST / name
    assert read(RunIdentity, folder / "run.json", "").model == "encoder"
    for path in (folder / "stages").glob("*.json"):
        assert read(StageRecord, path, "").seconds > 0
    for line in (folder / "events.jsonl").read_text().splitlines():
        kind = json.loads(line)["event"]
        assert (parse_event(line) is None) == (kind in ("said", "stage", "dev_evaluation")), line
    for line in (folder / "scores.jsonl").read_text().splitlines():
        assert ScoreLine.model_validate_json(line).key


def test_the_result_is_read():
    result = read(ResultRecord, FIRST / "finished" / "result.json", "")
    assert result.heads.removed == result.plan.num_heads
    assert result.cost.seconds["total"] == 1.146


def test_all_problems_are_reported_at_once():
    damaged = {"seconds": "1", "serch": {}, "plan": {"zero": [1]}}
    with pytest.raises(RunError) as error:
        parse(StageRecord, damaged, "layer-00.json", "delete it")
    message = str(error.value)
    assert "'seconds' must be a finite number, found '1'" in message
    assert "unknown key 'serch'. Did you mean 'search'?" in message
    assert (
        "'plan' must be a plan (plan: a layer must be a whole number from 0, found 'zero')"
        in message
    )
    assert message.startswith("layer-00.json: ")
    assert message.endswith("delete it")


@pytest.mark.parametrize(
    "line",
    ["", "{", "[]", '{"event": "said"}', '{"time": 1, "event": "new"}', '{"time": 1e300}'],
)
def test_a_damaged_or_unknown_event_is_left_out(line):
    assert parse_event(line) is None
