from __future__ import annotations

from dataclasses import replace

import pytest

from auber.bench.tables import all_tables, describe, device_of, search_table, title_of, ways_table
from tests.bench.records import make_bench


def test_every_row_has_a_cell_for_every_column():
    tables = list(all_tables(make_bench()))
    assert len(tables) == 6
    for table in tables:
        assert table.rows
        assert all(len(row) == len(table.columns) for row in table.rows)


def test_what_was_not_measured_has_no_table():
    assert list(all_tables(make_bench(rewards=None, tuning=None, search=None, growth=None))) == []
    assert len(list(all_tables(make_bench(rewards=None, growth=None)))) == 2


def test_the_device_says_what_computes():
    bench = make_bench()
    assert title_of(bench) == "BERT base, random weights, rte-like rows, NVIDIA H200"
    assert "load average" not in describe(bench)
    on_cpu = make_bench(device=replace(bench.device, name="cpu", threads=2))
    assert device_of(on_cpu) == "cpu, 2 threads"
    assert "load average before: 0.5" in describe(on_cpu)


def test_parts_that_a_run_has_not_are_not_told():
    search = make_bench().search
    told = replace(search, seconds=replace(search.seconds, choosing=3.0, timing=0.0))
    assert [row[0] for row in search_table(search).rows] == [
        "rewards", "agent", "tuning", "evaluation", "the rest", "all",
    ]  # fmt: skip
    assert ["choosing", "3.0", "3.0 %"] in search_table(told).rows
    assert "timing" not in [row[0] for row in search_table(told).rows]


@pytest.mark.parametrize(("share", "valid"), [(0.66, True), (1.02, False)])
def test_a_time_below_the_floor_is_called_not_valid(share, valid):
    rewards = make_bench().rewards
    table = ways_table(replace(rewards, total=replace(rewards.total, floor_share=share)))
    assert ("Not valid: nothing can be faster than its floor" not in table.note) == valid
