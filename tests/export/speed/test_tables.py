from __future__ import annotations

from dataclasses import replace

from auber.export.speed.tables import describe, tables_of
from tests.report.made import make_speed


def test_a_line_a_run_and_a_line_a_pair():
    summary, details = tables_of(make_speed())
    assert summary.columns[4:] == ["torch, cpu, float32, batch 1", "torch, cpu, float32, batch 32"]
    assert summary.rows == [
        [
            "rte auber seed 0",
            "40 of 144",
            "101 M of 109.5 M (-7.7 %)",
            "9.9 G of 11 G (-10.0 %)",
            "2.00 (2.00 to 2.00)",
            "0.80 (0.80 to 0.80) slower",
        ]
    ]
    assert details.rows[1][1:] == [
        "torch, cpu, float32, batch 32", "40 (40 to 40)", "50 (50 to 50)", "800.0", "640.0", "6",
    ]  # fmt: skip


def test_what_was_left_out_is_said():
    assert describe(make_speed()) == (
        "rows of 128 tokens, 2 CPU threads; both models have random weights, which latency does not depend on\n"
        "left out: torch on a GPU: there is none here"
    )


def test_a_way_that_one_run_lacks_is_an_empty_cell():
    speed = make_speed()
    (run,) = speed.runs
    fewer = replace(run, name="wnli auber seed 0", pairs=run.pairs[:1])
    summary, details = tables_of(replace(speed, runs=(fewer, run)))
    assert summary.title.startswith("What pruning buys on cpu: ")
    assert summary.columns[4:] == ["torch, cpu, float32, batch 1", "torch, cpu, float32, batch 32"]
    assert [row[4:] for row in summary.rows] == [
        ["2.00 (2.00 to 2.00)", ""],
        ["2.00 (2.00 to 2.00)", "0.80 (0.80 to 0.80) slower"],
    ]
    assert len(details.rows) == 3
