from __future__ import annotations

from pathlib import Path

import pytest

from auber.errors import RunError
from auber.export.speed import Speed, Timing, make_tables
from auber.system.records import parse, read, read_json
from tests.report.made import make_speed

RESULTS = sorted((Path(__file__).parents[2] / "results" / "speed").glob("*.json"))


def test_a_timing_compares_variants_with_the_unpruned_model():
    seconds = [0.001, 0.002, 0.003, 0.003, 0.004, 0.005]
    slower = [2 * each for each in seconds]
    names = ("unpruned", "pruned", "unpruned int8", "pruned int8")
    timing = Timing.of(("torch", "cpu", "float32"), 6, 16, names, (slower, seconds, slower))
    pruned, other = timing.variants
    assert (pruned.name, other.name) == ("pruned", "unpruned int8")
    times = pruned.times
    quartiles = times.low_quartile, times.milliseconds, times.high_quartile
    assert quartiles == pytest.approx((2.25, 3, 3.75))
    assert times.rows_per_second == pytest.approx(2000)
    assert timing.unpruned.milliseconds == pytest.approx(6)
    assert (pruned.ratio.median, other.ratio.median) == pytest.approx((2, 1))
    assert timing.words == (
        "pruned 2.00 times as fast (95 % interval 2.00 to 2.00); "
        "unpruned int8 1.00 times as fast (95 % interval 1.00 to 1.00): not significant"
    )
    assert (timing.batch, timing.length, timing.rounds) == (6, 16, 6)


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_stored_measurements_round_trip(path):
    expected = read_json(path, "restore it")
    for run in expected["runs"]:  # measured before neurons could be removed
        run["plan"] = {"heads": run["plan"], "neurons": {}}
    assert read(Speed, path, "measure it again").to_json() == expected


def test_a_damaged_measurement_is_refused():
    damaged = {**make_speed().to_json(), "runs": [], "format": 1}
    message = (
        "^speed.json: 'format' must be 2, found 1; 'runs' must be at least 1 entries long.*: "
        "measure it again$"
    )
    with pytest.raises(RunError, match=message):
        parse(Speed, damaged, "speed.json", "measure it again")


def test_tables_have_a_row_per_run_per_variant_and_per_time():
    speed = make_speed()
    (run,) = speed.runs
    fewer = run.model_copy(update={"name": "wnli auber seed 0", "timings": run.timings[:1]})
    tables = make_tables(speed.model_copy(update={"runs": (run, fewer)}))
    assert [*tables][1] == "Times as fast as the unpruned model on cpu (95 % interval)"
    sizes, ratios, times = tables.values()
    assert sizes[0] == {
        "run": "rte auber seed 0",
        "heads removed": "40 of 144",
        "neurons removed": "3,000 of 36,864",
        "multiply-adds per row": "9.9 G of 11 G (90.0 %)",
        "parameters": "101 M of 109.5 M (92.3 %)",
        "file size": "404 MB of 437.9 MB; int8 101.5 MB of 110 MB",
    }
    assert ratios[0] == {
        "run": "rte auber seed 0",
        "model": "pruned",
        "torch, cpu, float32, batch 1": "2.00 (2.00 to 2.00)",
        "torch, cpu, float32, batch 32": "0.80 (0.80 to 0.80)",
    }
    assert [*ratios[1].values()] == ["wnli auber seed 0", "pruned", "2.00 (2.00 to 2.00)", ""]
    assert len(times) == 6
    assert [[*row.values()][1:] for row in times[2:4]] == [
        ["torch, cpu, float32, batch 32", "unpruned", "40 (40 to 40)", "800.0", "6"],
        ["torch, cpu, float32, batch 32", "pruned", "50 (50 to 50)", "640.0", "6"],
    ]
