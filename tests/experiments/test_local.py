"""A hill climb finds what one flip after the other leads to, and keeps to its budget."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

from experiments import local
from experiments.local import climb

TABLES = Path(__file__).parents[2] / "results" / "regret" / "tables.json"


def layer(num_heads, value):
    masks = itertools.chain.from_iterable(itertools.combinations(range(num_heads), size) for size in range(num_heads))
    return {mask: value(mask) for mask in masks}


def test_a_slope_is_climbed_to_its_top():
    known = layer(5, lambda mask: -len({*mask} ^ {0, 2, 3}))
    found = climb(known, {(): known[()]}, 5, 100)
    assert max(found, key=found.__getitem__) == (0, 2, 3)
    assert all(found[mask] == known[mask] for mask in found)


def test_a_top_is_left_alone():
    known = layer(4, lambda mask: -len(mask))
    assert set(climb(known, {(): 0}, 4, 100)) == {(), (0,), (1,), (2,), (3,)}


def test_no_more_masks_than_there_are_rewards():
    known = layer(5, lambda mask: -len({*mask} ^ {0, 2, 3}))
    assert len(climb(known, {(): known[()]}, 5, 8)) == 8
    assert climb(known, {(): known[()]}, 5, 1) == {(): known[()]}


def test_the_last_head_stays():
    known = layer(3, len)
    assert max(map(len, climb(known, {(): 0}, 3, 100))) == 2


def test_the_program(tmp_path, monkeypatch):
    out = tmp_path / "local.json"
    words = ["local", str(TABLES), "--episodes", "2,4", "--seeds", "1", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", words)
    local.main()
    found = json.loads(out.read_text())
    assert found["command"].startswith("python -m experiments.local tables.json --episodes 2,4 --seeds 1")
    assert {(row["model"], row["task"]) for row in found["rows"]} >= {("mpnet-base", "wnli"), ("minilm-l6", "rte")}
    for row in found["rows"]:
        assert row["climb"]["regret"] <= row["agent"]["regret"]
        assert row["climb"]["rewards"] >= row["agent"]["rewards"]
