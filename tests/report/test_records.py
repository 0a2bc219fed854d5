from __future__ import annotations

import json

import pytest

from auber.report.records import read_run, strip_paths
from tests.report.results import make_result


@pytest.fixture
def record(tmp_path):
    (tmp_path / "result.json").write_text(json.dumps(make_result("rte", "auber", 1, 0.61)))
    return read_run(tmp_path / "result.json", "rte/seen/seed-1/auber")


@pytest.mark.parametrize(
    ("typed", "plain"),
    [
        (
            "auber study studies/table2.toml --model weights/x --data shared/glue --out "
            "$OUT/t2 --only task=rte,seed=1",
            "auber study studies/table2.toml --model mpnet --data GLUE --out t2 --only "
            "task=rte,seed=1",
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
    assert strip_paths(typed, "mpnet") == plain
    assert strip_paths(plain, "mpnet") == plain


def test_a_record_of_a_result(record):
    assert (record.dev, record.train, record.seconds, record.removed) == (0.61, 0.95, 12.5, 20)
    command = (
        "auber study studies/table2.toml --model mpnet-base --data GLUE --out t2 --only seed=1"
    )
    assert record.origin.command == command
    assert (record.origin.commit, record.origin.device) == ("0123456789abcdef", "NVIDIA H200")
    assert str(record) == "mpnet-base, rte, protocol seen, auber, seed 1"
    assert record.peak_gpu_bytes is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"command": None}, lambda record: record.origin.command is None),
        ({"provenance.commit": None}, lambda record: record.origin.commit is None),
        ({"provenance.commit.dirty": True}, lambda record: record.origin.commit.endswith("f+")),
        ({"cost.peak_gpu_bytes": 2**30}, lambda record: record.peak_gpu_bytes == 2**30),
        ({"cost.scout_steps": 5000}, lambda record: record.scout_steps == 5000),
        ({}, lambda record: record.scout_steps == 0),
        ({"dev.majority": None}, lambda record: record.majority is None),
        ({"kind": "finetune"}, lambda record: record.is_start),
    ],
)
def test_optional_entries(tmp_path, changes, expected):
    result = make_result("rte", "auber", 1, 0.61, **changes)
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert expected(read_run(tmp_path / "result.json", "here"))
