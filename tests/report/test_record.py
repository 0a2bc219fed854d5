from __future__ import annotations

import json

import pytest

from auber.errors import RunError
from auber.report.record import plain_command, read_result, record_from_json, record_to_json
from tests.report.results import make_result


@pytest.fixture
def record(tmp_path):
    (tmp_path / "result.json").write_text(json.dumps(make_result("rte", "auber", 1, 0.61)))
    return read_result(tmp_path / "result.json", "rte/seen/seed-1/auber")


@pytest.mark.parametrize(
    ("typed", "plain"),
    [
        (
            "auber study studies/table2.toml --model weights/x --data shared/glue --out $OUT/t2 --only task=rte,seed=1",
            "auber study studies/table2.toml --model mpnet --data GLUE --out t2 --only task=rte,seed=1",
        ),
        (
            "auber study s.toml --model=/a/b --data=glue --out=runs/t2",
            "auber study s.toml --model=mpnet --data=GLUE --out=t2",
        ),
        (
            "auber prune --heads-from /a/run --set first.epochs=3",
            "auber prune --heads-from run --set first.epochs=3",
        ),
        ("auber study '~/my studies/s.toml' --quiet", "auber study s.toml --quiet"),
    ],
)
def test_a_command_names_no_place(typed, plain):
    assert plain_command(typed, "mpnet") == plain
    assert plain_command(plain, "mpnet") == plain


def test_what_a_record_takes_over(record):
    assert (record.dev, record.train, record.seconds, record.removed) == (0.61, 0.95, 12.5, 20)
    assert (
        record.origin.command
        == "auber study studies/table2.toml --model mpnet-base --data GLUE --out t2 --only seed=1"
    )
    assert (record.origin.commit, record.origin.device) == ("0123456789abcdef", "NVIDIA H200")
    assert record.words == "mpnet-base, rte, protocol seen, auber, seed 1"
    assert record.peak_gpu_bytes is None


def test_another_name_of_the_model(record):
    named = record.named("mpnet")
    assert (named.model, named.origin.command.split()[4]) == ("mpnet", "mpnet")
    assert (named.dev, named.start) == (record.dev, record.start)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"command": None}, lambda record: record.origin.command is None),
        ({"provenance.commit": None}, lambda record: record.origin.commit is None),
        (
            {"provenance.commit.dirty": True},
            lambda record: record.origin.commit == "0123456789abcdef+",
        ),
        ({"cost.peak_gpu_bytes": 2**30}, lambda record: record.peak_gpu_bytes == 2**30),
        ({"cost.scout_steps": 5000}, lambda record: record.scout_steps == 5000),
        ({}, lambda record: record.scout_steps == 0),
        ({"dev.majority": None}, lambda record: record.majority is None),
        ({"kind": "finetune"}, lambda record: record.is_start),
    ],
)
def test_what_may_be_absent_or_otherwise(tmp_path, changes, expected):
    (tmp_path / "result.json").write_text(
        json.dumps(make_result("rte", "auber", 1, 0.61, **changes))
    )
    record = read_result(tmp_path / "result.json", "here")
    assert expected(record)
    assert record_from_json(json.loads(json.dumps(record_to_json(record, {}))), {}, "x") == record


@pytest.mark.parametrize(
    "common", [{}, {"seed": 0, "last.epochs": 6, "random.draw": 0}, {"gone": 3, "seed": 1}]
)
def test_a_record_survives_its_line(record, common):
    line = json.loads(json.dumps(record_to_json(record, common)))
    assert record_from_json(line, common, "file") == record
    assert line["lacking"] == [key for key in common if key == "gone"]
    assert ("last.epochs" in line["settings"]) == ("last.epochs" not in common)


def test_a_line_that_knows_of_no_scouts_had_none(record):
    line = json.loads(json.dumps(record_to_json(record, {})))
    del line["scout_steps"]
    assert record_from_json(line, {}, "file") == record
    with pytest.raises(RunError, match=r"^file: 'scout_steps' must be a whole number, found 'x'"):
        record_from_json({**line, "scout_steps": "x"}, {}, "file")


def test_a_damaged_line_is_named(record):
    line = json.loads(json.dumps(record_to_json(record, {})))
    with pytest.raises(
        RunError, match="f.json: runs: must be an object, found list; save the results again"
    ):
        record_from_json([], {}, "f.json: runs")
    with pytest.raises(RunError, match="f.json: runs: 'dev' must be a finite number, found 'x'"):
        record_from_json({**line, "dev": "x"}, {}, "f.json: runs")
    with pytest.raises(RunError, match="f.json: runs: lacks 'origin.device'"):
        record_from_json({**line, "origin": {"command": None, "commit": None}}, {}, "f.json: runs")
