from __future__ import annotations

from pathlib import Path

import pytest

from auber.report.analysis import analyse
from auber.report.paper_tables import all_tables
from auber.report.results_file import collect
from auber.report.tables import to_csv
from tests.report.results import make_result, write_plan, write_run, write_study

ROOT = Path(__file__).parents[2]


def tables_of(*places):
    return {table.name: table for table in all_tables(analyse(collect(*places)))}


def cell(table, title, row):
    return table.rows[row][table.columns.index(title)]


def notes(table, place=("mpnet-base", "seen")):
    return table.parts[place].notes


def test_published_numbers_stand_apart_and_name_their_model(tmp_path):
    write_study(tmp_path, {"mrpc": {"auber": [80.0], "original+tuning": [79.0]}})
    table = tables_of(tmp_path)["table2"]
    assert (cell(table, "published dev", 1), cell(table, "published P", 1)) == (86.03, 20)
    assert (cell(table, "published dev", 0), cell(table, "dev", 1)) == (None, 80.0)
    assert "Published: another model (bert-base-cased, here mpnet-base)." in notes(table)
    assert "not measured here" in table.notes[1]


def test_the_published_model_itself_is_no_other_model(tmp_path):
    write_study(tmp_path, {"mrpc": {"auber": [80.0]}}, model="google-bert/bert-base-cased")
    table = tables_of(tmp_path)["table2"]
    assert notes(table, ("google-bert/bert-base-cased", "seen")) == ()


def test_verdicts(tmp_path):
    scores = {"auber": [63.0, 64.5, 66.0], "original+tuning": [60.0, 61.0, 62.0], "greedy": [62.0]}
    write_study(tmp_path, {"rte": scores})
    write_run(tmp_path, "x", make_result("rte", "michel", 9, 0.5))
    table = tables_of(tmp_path)["table2"]
    verdicts = [cell(table, "against original+tuning", row) for row in range(4)]
    assert verdicts == [
        None,
        "ahead by 3.5 points, 95 % interval 2.3 to 4.7, 3 seeds",
        "not compared: no run of original+tuning with the same seed",
        "one run proves nothing (+2.0 points)",
    ]


def test_runs_without_a_result_are_named_under_every_table(tmp_path):
    write_study(tmp_path, {"rte": {"auber": [60.0]}})
    write_run(tmp_path, "cut", None)
    for table in tables_of(tmp_path).values():
        assert table.notes[-1] == "1 run has no result and is in no number here: cut (unfinished)."


def test_a_table_that_is_not_complete_says_so(tmp_path):
    write_plan(tmp_path, ["rte", "mrpc"], ["auber", "auber-l2", "original+tuning"], [0, 1])
    write_study(
        tmp_path,
        {"rte": {"auber": [60.0, 61.0], "auber-l2": [60.0], "original+tuning": [60.0, 61.0]}},
    )
    tables = tables_of(tmp_path)
    one, two = (f"incomplete: {number} of 4 blocks so far" for number in (1, 2))
    labels = {name: [part.label for part in table.parts.values()] for name, table in tables.items()}
    assert labels == {
        "table1": [],
        "table2": [two],
        "table3": [one],
        "comparisons": [one],
        "overfitting": [one],
        "costs": [one],
    }
    missing = "Missing so far: mrpc, seed 0: everything; mrpc, seed 1: everything"
    assert notes(tables["table2"])[0] == f"{missing}."
    assert notes(tables["table3"])[0] == f"{missing}; rte, seed 1: auber-l2."


def test_a_complete_study_has_no_label(tmp_path):
    write_plan(tmp_path, ["rte"], ["auber", "original+tuning"], [0, 1])
    write_study(tmp_path, {"rte": {"auber": [60.0, 61.0], "original+tuning": [60.0, 61.0]}})
    parts = [part for table in tables_of(tmp_path).values() for part in table.parts.values()]
    assert {part.label for part in parts} == {None}


def test_gaps_in_words(tmp_path):
    for method, trains in (("auber", (90.0, 91.0, 92.5)), ("original+tuning", (95.0, 95.0, 95.0))):
        for seed, train in enumerate(trains):
            result = make_result("rte", method, seed, 0.6, **{"train.score": train / 100})
            write_run(tmp_path, f"{method}-{seed}", result)
    write_run(tmp_path, "greedy", make_result("rte", "greedy", 0, 0.5))
    table = tables_of(tmp_path)["overfitting"]
    assert [cell(table, "verdict", row) for row in (0, 1)] == [
        "smaller by 3.8 points, 95 % interval 0.7 to 7.0, 3 (task, seed) pairs",
        "one run proves nothing (+10.0 points)",
    ]
    numbers = [
        cell(table, title, 0)
        for title in ("gap", "gap of original+tuning", "train difference", "dev difference")
    ]
    assert numbers == pytest.approx([31.1667, 35.0, -3.8333, 0.0], abs=1e-3)
    larger = [make_result("rte", "greedy", seed, 0.5 - seed / 100) for seed in (1, 2)]
    for result in larger:
        write_run(tmp_path, f"greedy-{result['seed']}", result)
    assert cell(tables_of(tmp_path)["overfitting"], "verdict", 1).startswith(
        "larger by 11.0 points"
    )


def test_no_ablation_is_said_and_not_left_blank(tmp_path):
    write_study(tmp_path, {"rte": {"auber": [60.0]}})
    tables = tables_of(tmp_path)
    assert (tables["table3"].rows, tables["table3"].empty) == ((), "No run of an ablation.")
    assert tables["comparisons"].rows == ()


def test_costs_count_a_method_once(tmp_path):
    write_study(
        tmp_path,
        {"rte": {"auber": [60.0], "auber-l2": [61.0]}, "mrpc": {"auber": [80.0]}},
        **{"cost.scout_steps": 5000},
    )
    table = tables_of(tmp_path)["costs"]
    assert [row[2:9] for row in table.rows] == [
        ("mrpc", "auber", 1, 3000, 1500, 100, 5000),
        ("rte", "auber", 1, 3000, 1500, 100, 5000),
        ("rte", "auber-l2", 1, 3000, 1500, 100, 5000),
    ]


def test_comparisons_on_learned_tasks_stand_below_those_on_all(tmp_path):
    """WNLI's control is below its majority class; greedy was run where all is learned."""
    scores = {
        "mrpc": {
            "auber": [79.0, 82.0, 82.0],
            "original+tuning": [80.0, 81.0, 82.0],
            "random": [69.0, 72.5, 72.2],
            "greedy": [70.0, 71.0],
        },
        "wnli": {
            "auber": [30.0, 31.0, 33.0],
            "original+tuning": [30.0, 35.0, 25.0],
            "random": [80.0, 81.0, 82.5],
        },
    }
    write_study(tmp_path, scores)
    table = tables_of(tmp_path)["comparisons"]
    rows = range(len(table.rows))
    assert [(cell(table, "against", row), cell(table, "tasks", row)) for row in rows] == [
        ("original+tuning", "mrpc, wnli"),
        ("random", "mrpc, wnli"),
        ("greedy", "mrpc"),
        ("original+tuning", "learned: mrpc"),
        ("random", "learned: mrpc"),
    ]
    assert cell(table, "verdict", 4).startswith(
        "ahead by 9.8 points, 95 % interval 9.1 to 10.4, 3 (task, seed) pairs"
    )
    assert [cell(table, "comparisons", row) for row in rows] == [2, 2, 2, 1, 1]


# Lines up to the verdicts, written by the first edition with
# auber report results/studies/*.json --out DIR
KEPT = {
    "table2": (
        "minilm-l6,seen,rte,auber,5,15,7.382412,55.234657,4.240917,49.968863,60.500451,95.373494,"
        "1.604266,40.138837,3.769447,-1.083032,-3.27902,1.112955,0.24275,t,1,0.0625,6,2.974755,",
        "mpnet-base,crossfit,cola,random,5,53.6,2.792848,51.627434,2.222829,48.867427,54.387441,"
        "91.409237,0.75816,39.781803,2.664225,-8.5575,-13.32527,-3.789729,0.007579,t,0.037897,"
        "0.0625,5,6.458573,",
    ),
    "table3": (
        "minilm-l6,seen,cola,auber-reverse,5,16,5.477226,29.227362,1.716516,27.096025,31.358699,"
        "81.204616,2.054442,51.977254,0.585162,0.880209,-2.255617,4.016035,0.479318,t,1,0.0625,4,"
        "4.247889,",
    ),
    "comparisons": (
        'mpnet-base,crossfit,auber,random,"learned: cola, mrpc, rte",15,3.913989,1.606831,6.221147,'
        "0.002502,sign flips,0.01001,0.000061,4,3.241392,",
    ),
    "overfitting": (
        'mpnet-base,seen,auber,original+tuning,"cola, mrpc, rte, wnli",16,15.020222,20.667794,'
        "-4.273459,1.374112,-5.647572,-8.868408,-2.426736,0.000458,sign flips,0.00412,0.000031,10,"
        "4.530079,",
    ),
}


def test_the_kept_results_give_the_same_numbers():
    tables = tables_of(*sorted((ROOT / "results" / "studies").glob("*.json")))
    for name, lines in KEPT.items():
        text = to_csv(tables[name])
        assert [line for line in lines if f"\n{line}" not in text] == []
