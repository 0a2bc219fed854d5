from __future__ import annotations

from pathlib import Path

import pytest

from auber.errors import RunError
from auber.export.speed import Pair, Speed, describe, make_tables, parse_batches
from auber.system.records import parse, read, read_json
from tests.report.made import make_speed

RESULTS = sorted((Path(__file__).parents[2] / "results" / "speed").glob("*.json"))


def test_a_pair_compares_unpruned_with_pruned():
    seconds = [0.001, 0.002, 0.003, 0.003, 0.004, 0.005]
    slower = [2 * each for each in seconds]
    pair = Pair.of(("torch", "cpu", "float32"), 6, 16, unpruned=slower, pruned=seconds)
    times = pair.pruned
    quartiles = times.low_quartile, times.milliseconds, times.high_quartile
    assert quartiles == pytest.approx((2.25, 3, 3.75))
    assert times.rows_per_second == pytest.approx(2000)
    assert pair.unpruned.milliseconds == pytest.approx(6)
    assert pair.ratio.median == pytest.approx(2)
    assert pair.verdict == "2.00 times as fast (95 % interval 2.00 to 2.00)"
    assert (pair.batch, pair.length, pair.rounds) == (6, 16, 6)


def test_batches_are_sorted():
    assert parse_batches("32, 1") == (1, 32)


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_stored_measurements_round_trip(path):
    expected = read_json(path, "restore it")
    for run in expected["runs"]:  # measured before neurons could be removed
        run["plan"] = {"heads": run["plan"], "neurons": {}}
    assert read(Speed, path, "measure it again").to_json() == expected


def test_a_damaged_measurement_is_refused():
    damaged = {**make_speed().to_json(), "runs": [], "format": 2}
    message = (
        "^speed.json: 'format' must be 1, found 2; 'runs' must have at least one run.*: measure it "
        "again$"
    )
    with pytest.raises(RunError, match=message):
        parse(Speed, damaged, "speed.json", "measure it again")


def test_tables_have_a_row_per_run_and_a_row_per_pair():
    speed = make_speed()
    (run,) = speed.runs
    fewer = run.model_copy(update={"name": "wnli auber seed 0", "pairs": run.pairs[:1]})
    summary, timings = make_tables(speed.model_copy(update={"runs": (run, fewer)}))
    assert summary.title == "Size and speedup on cpu (95 % interval)"
    assert dict(zip(summary.columns, summary.rows[0], strict=True)) == {
        "run": "rte auber seed 0",
        "heads removed": "40 of 144",
        "parameters": "101 M of 109.5 M (-7.7 %)",
        "multiply-adds per row": "9.9 G of 11 G (-10.0 %)",
        "torch, cpu, float32, batch 1": "2.00 (2.00 to 2.00)",
        "torch, cpu, float32, batch 32": "0.80 (0.80 to 0.80) slower",
    }
    assert summary.rows[1][4:] == ["2.00 (2.00 to 2.00)", ""]
    assert len(timings.rows) == 3
    assert timings.rows[1][1:] == [
        "torch, cpu, float32, batch 32", "40 (40 to 40)", "50 (50 to 50)", "800.0", "640.0", "6",
    ]  # fmt: skip


def test_the_description_names_what_was_left_out():
    assert describe(make_speed()) == (
        "rows of 128 tokens, 2 CPU threads; both models have random weights, which latency does "
        "not depend on\nleft out: torch on a GPU: there is none here"
    )
