"""The tables of single runs, above all score, size and speed of the models side by side."""

from __future__ import annotations

import json

from auber.report.layers import read_runs
from auber.report.run_tables import compare_models, list_costs
from tests.report.made_runs import compared, write_ranked, write_searched, write_sized


def columns(grid, *names):
    return [[row[name] for name in names] for row in grid.rows]


def test_the_sizes_of_a_run_below_the_unpruned_model(tmp_path):
    grid = compare_models(read_runs([write_sized(tmp_path)]))
    assert columns(grid, "model", "dev accuracy", "change", "95 % interval") == [
        ["unpruned", "95.0", "", ""],
        ["0.5", "94.8", "-0.2", "-3.0 to +2.6"],
        ["0.25", "91.0", "-4.0", "-7.2 to -0.8"],
    ]
    assert columns(grid, "multiply-adds", "parameters", "ms per row", "times as fast") == [
        ["100 %", "4.0 M", "8", ""],
        ["50 %", "2.8 M", "4", "2.0"],
        ["25 %", "2.2 M", "2.5", "3.2"],
    ]
    assert columns(grid, "heads removed", "neurons removed") == [
        ["", ""],
        ["1 of 12", "150 of 300"],
        ["3 of 12", "218 of 300"],
    ]
    assert "(10 tokens on a CPU)" in grid.notes[0]


def test_the_size_chosen_within_a_tolerance_is_marked(tmp_path):
    folder = write_sized(tmp_path, config={"seed": 0, "size.tolerance": 5.0})
    result = json.loads((folder / "result.json").read_text())
    held_out = {"rows": 100, "score": 0.95, "loss": 0.24, "bound": 0.55, "is_within": True}
    for size in result["sizes"]:
        size["held_out"] = held_out
    (folder / "result.json").write_text(json.dumps(result))
    grid = compare_models(read_runs([folder]))
    assert columns(grid, "model", "loss on held-out rows")[1:] == [
        ["0.5", "0.2, at most 0.6"],
        ["0.25 (chosen)", "0.2, at most 0.6"],
    ]


def test_runs_side_by_side_share_the_unpruned_model(tmp_path):
    slower = compared(0.95, 1.0, 12.0)
    places = [
        write_sized(tmp_path, "a", sizes=[]),
        write_sized(tmp_path, "b", before=slower),
        write_sized(tmp_path, "c", sizes=[], start="others", metric="matthews"),
    ]
    both = compare_models(read_runs(places[:2]))
    assert columns(both, "model", "ms per row", "times as fast") == [
        ["unpruned", "8 to 12", ""],
        ["a", "2.5", "3.2"],
        ["b, 0.5", "4", "3.0"],
        ["b, 0.25", "2.5", "4.8"],
    ]
    every = compare_models(read_runs([places[0], places[2]]))
    assert columns(every, "model", "dev accuracy", "dev matthews", "95 % interval") == [
        ["unpruned (a)", "95.0", "", ""],
        ["unpruned (c)", "", "95.0", ""],
        ["a", "91.0", "", "-7.2 to -0.8"],
        ["c", "", "91.0", ""],
    ]


def test_a_pruned_start(tmp_path):
    grid = compare_models(read_runs([write_sized(tmp_path, before=compared(0.95, 0.5, 8.0))]))
    assert grid.rows[0]["model"] == "before the run"
    assert grid.rows[0]["multiply-adds"] == "50 %"


def test_without_labels_scores_have_no_change(tmp_path):
    orders = {"groups": 8, "same_first": 0.75, "ndcg": 0.96, "low_ndcg": 0.9, "spearman": 0.8}
    agreement = {"metrics": {"accuracy": 0.9}, "orders": orders}
    folder = write_sized(tmp_path, answered=True, agreement=agreement, sizes=[])
    grid = compare_models(read_runs([folder]))
    assert "change" not in grid.cells
    assert columns(grid, "dev agreement with the unpruned model", "95 % interval") == [
        ["95.0", ""],
        ["91.0", "88.1 to 93.2"],
    ]
    names = ("same first row", "NDCG@10", "rank correlation")
    assert columns(grid, *names)[1] == ["75.0 % of 8 groups", "0.960", "0.800"]


def test_a_run_that_did_not_measure_the_unpruned_model(tmp_path):
    """As in the first edition: heads alone, and the interval of the score itself."""
    grid = compare_models(read_runs([write_searched(tmp_path)]))
    assert grid.rows == [
        {
            "model": "auber",
            "dev accuracy": "61.7",
            "95 % interval": "55.9 to 67.3",
            "heads removed": "3 of 12",
        }
    ]


def test_costs_have_a_column_for_each_run(tmp_path):
    grid = list_costs(read_runs([write_searched(tmp_path), write_ranked(tmp_path)]))
    rows = {row.pop(""): row for row in grid.rows}
    assert rows["method"] == {"auber": "auber", "michel": "michel"}
    assert rows["gap"] == {"auber": "+33.27", "michel": "+31.00"}
    assert rows["seconds"] == {"auber": "10.5", "michel": "5.0"}
    assert rows["seconds: rewards"] == {"auber": "4.0", "michel": "0.0"}
    assert rows["seconds: other"] == {"auber": "0.5", "michel": "3.0"}
    assert "seconds: evaluation" not in rows, "neither took any"
    assert "protocol" not in rows, "both have the same"
    assert "dev" not in rows, "it stands in the table of models"
    fisher = list_costs(read_runs([write_sized(tmp_path)]))
    assert [row[""] for row in fisher.rows] == [
        *("task", "method", "seed", "train", "gap", "tuning steps", "seconds"),
        *("seconds: choosing units", "seconds: last tuning", "seconds: other"),
    ]
