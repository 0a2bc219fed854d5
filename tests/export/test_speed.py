from __future__ import annotations

from pathlib import Path

import pytest

from auber.errors import ConfigError, RunError
from auber.export.speed import Pair, Speed, Times, describe, make_tables, parse_batches
from auber.system.records import parse, read, read_json
from tests.report.made import make_speed

RESULTS = sorted((Path(__file__).parents[2] / "results" / "speed").glob("*.json"))


def test_times_of_a_batch():
    times = Times.of([0.001, 0.002, 0.003, 0.004, 0.005], batch=6)
    assert (times.low_quartile, times.milliseconds, times.high_quartile) == pytest.approx((2, 3, 4))
    assert times.rows_per_second == pytest.approx(2000)


def test_a_pair_compares_unpruned_with_pruned():
    pair = Pair.of(("torch", "cpu", "float32"), 2, 16, unpruned=[0.04] * 6, pruned=[0.02] * 6)
    assert pair.unpruned.milliseconds == pytest.approx(40)
    assert pair.ratio.median == pytest.approx(2)
    assert pair.verdict == "2.00 times as fast (95 % interval 2.00 to 2.00)"
    assert (pair.batch, pair.length, pair.rounds) == (2, 16, 6)


def test_batches_are_sorted():
    assert parse_batches("32, 1") == (1, 32)
    with pytest.raises(ConfigError, match=r"^--batch must be different numbers from 1 .*'1;2'$"):
        parse_batches("1;2")


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_stored_measurements_round_trip(path):
    assert read(Speed, path, "measure it again").to_json() == read_json(path, "restore it")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"runs": []}, "'runs' must have at least one run"),
        ({"format": 2}, "'format' must be 1, found 2"),
        ({"seconds": "1"}, "'seconds' must be a finite number, found '1'"),
    ],
)
def test_a_damaged_measurement_is_refused(change, message):
    with pytest.raises(RunError, match=f"^speed.json: {message}.*: measure it again$"):
        parse(Speed, {**make_speed().to_json(), **change}, "speed.json", "measure it again")


def test_tables_have_a_row_per_run_and_a_row_per_pair():
    summary, timings = make_tables(make_speed())
    assert summary.title == "Size and speedup on cpu (95 % interval)"
    assert [dict(zip(summary.columns, row, strict=True)) for row in summary.rows] == [
        {
            "run": "rte auber seed 0",
            "heads removed": "40 of 144",
            "parameters": "101 M of 109.5 M (-7.7 %)",
            "multiply-adds per row": "9.9 G of 11 G (-10.0 %)",
            "torch, cpu, float32, batch 1": "2.00 (2.00 to 2.00)",
            "torch, cpu, float32, batch 32": "0.80 (0.80 to 0.80) slower",
        }
    ]
    assert timings.rows[1][1:] == [
        "torch, cpu, float32, batch 32", "40 (40 to 40)", "50 (50 to 50)", "800.0", "640.0", "6",
    ]  # fmt: skip


def test_a_setting_that_one_run_lacks_is_an_empty_cell():
    speed = make_speed()
    (run,) = speed.runs
    fewer = run.model_copy(update={"name": "wnli auber seed 0", "pairs": run.pairs[:1]})
    summary, timings = make_tables(speed.model_copy(update={"runs": (fewer, run)}))
    assert [row[4:] for row in summary.rows] == [
        ["2.00 (2.00 to 2.00)", ""],
        ["2.00 (2.00 to 2.00)", "0.80 (0.80 to 0.80) slower"],
    ]
    assert len(timings.rows) == 3


def test_the_description_names_what_was_left_out():
    assert describe(make_speed()) == (
        "rows of 128 tokens, 2 CPU threads; both models have random weights, which latency does "
        "not depend on\nleft out: torch on a GPU: there is none here"
    )
