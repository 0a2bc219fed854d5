from __future__ import annotations

import pytest

from auber.report.analysis import analyse
from auber.report.collect import collect
from auber.report.columns import Column, plain
from auber.report.tables import all_tables
from tests.report.results import make_result, write_plan, write_run, write_study


def tables_of(folder):
    return {table.name: table for table in all_tables(analyse(collect(folder)))}


def cell(table, title, row, section=0):
    place = [column.title for column in table.columns].index(title)
    return table.sections[section].rows[row][place]


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        (Column("x"), None, ""),
        (Column("x"), "a", "a"),
        (Column("x", "number"), 3668, "3668"),
        (Column("x", "number", 2), 84.065, "84.06"),
        (Column("x", "number", 1, signed=True), 1.25, "+1.2"),
        (Column("x", "number", 1, signed=True), -0.04, "0.0"),
        (Column("x", "spread", 1), (84.26, 0.74), "84.3 ± 0.7"),
        (Column("x", "spread", 1), (84.26, None), "84.3"),
        (Column("x", "spread", 1, signed=True), (4.26, 0.74), "+4.3 ± 0.7"),
        (Column("x", "range", 1, signed=True), (-0.5, 2.0), "-0.5 to +2.0"),
        (Column("x", "range", 1), (50.01, 50.04), "50.0"),
    ],
)
def test_plain_words(column, value, words):
    assert plain(column, value) == words


def test_every_row_has_a_value_for_every_column(tmp_path):
    write_study(
        tmp_path,
        {"rte": {"auber": [60.0, 61.0], "auber-l2": [60.0, 60.0], "original+tuning": [60.0, 62.0]}},
    )
    tables = tables_of(tmp_path)
    assert list(tables) == ["table1", "table2", "table3", "comparisons", "overfitting", "costs"]
    for table in tables.values():
        for section in table.sections:
            assert section.rows
            assert {len(row) for row in section.rows} == {len(table.columns)}


def test_published_numbers_stand_apart_and_name_their_model(tmp_path):
    write_study(tmp_path, {"mrpc": {"auber": [80.0], "original+tuning": [79.0]}})
    table = tables_of(tmp_path)["table2"]
    assert (cell(table, "published dev", 1), cell(table, "published P", 1)) == (86.03, 20)
    assert (cell(table, "published dev", 0), cell(table, "dev", 1)) == (None, (80.0, None))
    assert "Published: another model (bert-base-cased, here mpnet-base)." in table.sections[0].notes
    assert "not measured here" in table.notes[1]


def test_the_published_model_itself_is_no_other_model(tmp_path):
    write_study(tmp_path, {"mrpc": {"auber": [80.0]}}, model="google-bert/bert-base-cased")
    assert tables_of(tmp_path)["table2"].sections[0].notes == ()


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
    titles = {name: [section.title for section in table.sections] for name, table in tables.items()}
    assert titles == {
        "table1": [None],
        "table2": ["mpnet-base, protocol seen (incomplete: 2 of 4 blocks so far)"],
        "table3": ["mpnet-base, protocol seen (incomplete: 1 of 4 blocks so far)"],
        "comparisons": ["mpnet-base, protocol seen (incomplete: 1 of 4 blocks so far)"],
        "overfitting": ["mpnet-base, protocol seen (incomplete: 1 of 4 blocks so far)"],
        "costs": ["mpnet-base, protocol seen (incomplete: 1 of 4 blocks so far)"],
    }
    missing = "Missing so far: mrpc, seed 0: everything; mrpc, seed 1: everything"
    assert tables["table2"].sections[0].notes[0] == f"{missing}."
    assert tables["table3"].sections[0].notes[0] == f"{missing}; rte, seed 1: auber-l2."


def test_a_complete_study_has_no_label(tmp_path):
    write_plan(tmp_path, ["rte"], ["auber", "original+tuning"], [0, 1])
    write_study(tmp_path, {"rte": {"auber": [60.0, 61.0], "original+tuning": [60.0, 61.0]}})
    assert {
        section.label for table in tables_of(tmp_path).values() for section in table.sections
    } == {None}


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
    assert (tables["table3"].sections, tables["table3"].empty) == ((), "No run of an ablation.")
    assert tables["comparisons"].sections == ()


def test_costs_count_a_method_once(tmp_path):
    write_study(tmp_path, {"rte": {"auber": [60.0], "auber-l2": [61.0]}, "mrpc": {"auber": [80.0]}})
    rows = tables_of(tmp_path)["costs"].sections[0].rows
    assert [row[:4] for row in rows] == [
        ("mrpc", "auber", 1, 3000),
        ("rte", "auber", 1, 3000),
        ("rte", "auber-l2", 1, 3000),
    ]


def test_costs_tell_the_steps_of_scouts_apart(tmp_path):
    write_study(tmp_path, {"rte": {"auber": [60.0, 61.0]}}, **{"cost.scout_steps": 5000})
    write_study(tmp_path, {"rte": {"original+tuning": [60.0, 61.0]}})
    table = tables_of(tmp_path)["costs"]
    place = [column.title for column in table.columns].index("scout steps")
    assert {row[1]: row[place - 1 : place + 1] for row in table.sections[0].rows} == {
        "auber": (100.5, 5000),
        "original+tuning": (100.5, 0),
    }


def test_comparisons_on_learned_tasks_stand_below_those_on_all(tmp_path):
    """WNLI's control is below its majority class. A method that was only run where all is learned is compared once."""
    scores = {
        "mrpc": {"auber": [79.0, 82.0, 82.0], "original+tuning": [80.0, 81.0, 82.0], "random": [69.0, 72.5, 72.2], "greedy": [70.0, 71.0]},
        "wnli": {"auber": [30.0, 31.0, 33.0], "original+tuning": [30.0, 35.0, 25.0], "random": [80.0, 81.0, 82.5]},
    }  # fmt: skip
    write_study(tmp_path, scores)
    table = tables_of(tmp_path)["comparisons"]
    rows = range(len(table.sections[0].rows))
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
