from __future__ import annotations

from pathlib import Path

from auber.report.analysis import analyse
from auber.report.paper_tables import all_tables, published
from auber.report.tables import to_csv
from tests.report.results import collect, make_result, write_plan, write_run, write_study

ROOT = Path(__file__).parents[2]
CONTROL = "original+tuning"


def tables_of(*places):
    return {table.name: table for table in all_tables(analyse(collect(*places)))}


def column(table, title):
    return table.data[title].tolist()


def test_published_numbers_stand_apart_and_name_their_model(tmp_path):
    write_study(tmp_path, {"mrpc": {"auber": [80.0], CONTROL: [79.0]}})
    table = tables_of(tmp_path)["table2"]
    assert column(table, "dev") == [79.0, 80.0]
    assert column(table, "published dev") == [None, 86.03]
    assert column(table, "published P") == [None, 20]
    assert table.notes[2].startswith(
        "Columns named published are the paper's numbers for bert-base-"
    )


def test_cells_of_the_papers_tables():
    assert published("mrpc", "auber") == (86.03, 20)
    assert published("rte", "voita") == (63.61, None)
    assert published("wnli", "auber-reverse") == (54.93, 101)
    assert published("mrpc", CONTROL) == (None, None)  # the paper lacks this control
    assert published("agreement", "auber") == (None, None)


def test_verdicts(tmp_path):
    scores = {"auber": [63.0, 64.5, 66.0], CONTROL: [60.0, 61.0, 62.0], "greedy": [62.0]}
    write_study(tmp_path, {"rte": scores})
    write_run(tmp_path, "x", make_result("rte", "michel", 9, 0.5))
    assert column(tables_of(tmp_path)["table2"], f"against {CONTROL}") == [
        None,
        "ahead by 3.5 points, 95 % interval 2.3 to 4.7, 3 seeds",
        "not compared: no run of original+tuning with the same seed",
        "one run proves nothing (+2.0 points)",
    ]


def test_runs_without_a_result_are_named_under_every_table(tmp_path):
    scores = {"rte": {"auber": [60.0], "auber-l2": [61.0]}, "mrpc": {"auber": [80.0]}}
    write_study(tmp_path, scores, **{"cost.scout_steps": 5000})
    write_run(tmp_path, "cut", None)
    tables = tables_of(tmp_path)
    for table in tables.values():
        assert table.notes[-1] == "1 run has no result and is in no number here: cut (unfinished)."
    methods = [("mrpc", "auber"), ("rte", "auber"), ("rte", "auber-l2")]  # once each
    costs = (1, 3000, 1500, 100, 5000)
    rows = tables["costs"].data.iloc[:, 2:9].to_numpy().tolist()
    assert rows == [[*method, *costs] for method in methods]


def test_an_incomplete_table_is_labelled(tmp_path):
    write_plan(tmp_path, ["rte", "mrpc"], ["auber", "auber-l2", CONTROL], [0, 1])
    scores = {"auber": [60.0, 61.0], "auber-l2": [60.0], CONTROL: [60.0, 61.0]}
    write_study(tmp_path, {"rte": scores})
    tables = tables_of(tmp_path)
    missing = (
        "Missing so far: mrpc, seed 0: everything; mrpc, seed 1: everything; rte, seed 1: auber-l2."
    )
    for name in ("table2", "table3", "comparisons", "overfitting", "costs"):
        (part,) = tables[name].parts.values()
        assert (part.label, part.notes[0]) == ("incomplete: 1 of 4 blocks so far", missing)
    write_plan(tmp_path, ["rte"], ["auber", CONTROL], [0, 1])
    parts = [part for table in tables_of(tmp_path).values() for part in table.parts.values()]
    assert {part.label for part in parts} == {None}


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
    tables = tables_of(*sorted((ROOT / "results" / "studies").glob("m*.json")))
    for name, lines in KEPT.items():
        text = to_csv(tables[name])
        assert [line for line in lines if f"\n{line}" not in text] == []
