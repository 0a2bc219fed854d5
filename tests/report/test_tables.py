from __future__ import annotations

import pytest

from auber.report.analysis import analyse
from auber.report.collect import collect
from auber.report.tables import Column, all_tables, plain
from tests.report.results import make_result, write_run, write_study


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
    write_study(tmp_path, {"rte": {"auber": [60.0, 61.0], "auber-l2": [60.0, 60.0], "original+tuning": [60.0, 62.0]}})
    tables = tables_of(tmp_path)
    assert list(tables) == ["table1", "table2", "table3", "comparisons", "costs"]
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
