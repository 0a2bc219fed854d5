"""The maps: a cell for each head, a bar for the neurons of each layer."""

from __future__ import annotations

import json

import pytest

from auber.report.head_maps import make_shades, map_heads
from auber.report.layers import read_runs
from tests.report.made_runs import write_searched, write_sized


def maps_of(*folders, **options):
    (maps,) = map_heads({"rte": {"fisher": read_runs(folders)}}).values()
    return maps


def test_each_size_has_a_map_of_both_kinds_of_unit(tmp_path):
    half, quarter, importance = maps_of(write_sized(tmp_path))
    assert half.title == "0.5: 1 of 12 heads and 150 of 300 neurons removed"
    assert (half.removed, half.shades[0]) == ({(0, 1)}, [0, -10, 0, 0])
    assert half.bars == [
        (50, "50", "layer 0: 50 of 100 neurons left"),
        (100, "100", "layer 1: 100 of 100 neurons left"),
        (0, "0", "layer 2: 0 of 100 neurons left"),
    ]
    assert quarter.title == "0.25: 3 of 12 heads and 218 of 300 neurons removed"
    assert [percent for percent, *_ in quarter.bars] == [2, 80, 0]
    assert half.texts[0][3] == "layer 0, head 3: kept; importance 0.3"
    assert quarter.texts[0][3] == "layer 0, head 3: removed; importance 0.3"
    assert importance.title == "Importance (how much the loss depends on the head)"
    assert importance.removed == quarter.removed, "it is of the chosen size"
    assert not importance.bars


def test_a_run_of_one_size(tmp_path):
    first, *_ = maps_of(write_sized(tmp_path, sizes=[]))
    assert first.title == "3 of 12 heads and 218 of 300 neurons removed"
    heads_only, *_ = maps_of(write_searched(tmp_path))
    assert (heads_only.title, heads_only.bars) == ("3 of 12 heads removed", [])


def test_neurons_alone(tmp_path):
    plan = {"heads": {}, "neurons": {"0": "0-9", "1": "0-9", "2": "0-9"}}
    heads = {"removed": 0, "total": 12, "layers": 3, "per_layer": 4}
    first, *_ = maps_of(write_sized(tmp_path, sizes=[], plan=plan, heads=heads))
    assert {number for _, number, _ in first.bars} == {"90"}
    assert first.removed == set()


def test_seeds_are_counted_and_their_widths_averaged(tmp_path):
    folders = [write_sized(tmp_path, name) for name in "ab"]
    result = json.loads((folders[1] / "result.json").read_text())
    result["plan"] = {"heads": {"0": [1]}, "neurons": {"0": "0-47"}}
    (folders[1] / "result.json").write_text(json.dumps(result))
    (both,) = maps_of(*folders)
    assert both.title == "fisher, 2 runs"
    assert both.shades[0] == [0, -10, 0, -5]
    assert both.texts[0][3] == "layer 0, head 3: removed in 1 of 2"
    assert both.bars == [
        (27, "27", "layer 0: 27 of 100 neurons left"),
        (90, "90", "layer 1: 90 of 100 neurons left"),
        (50, "50", "layer 2: 50 of 100 neurons left"),
    ]


def test_a_control_has_no_map(tmp_path):
    changes = {"plan": {}, "heads": {"removed": 0, "total": 12, "layers": 3, "per_layer": 4}}
    folder = write_sized(tmp_path, sizes=[], method="original+tuning", **changes)
    assert map_heads({"rte": {"control": read_runs([folder])}}) == {}


@pytest.mark.parametrize(
    ("values", "scale", "shades"),
    [
        ([[1.0, 2.0, 3.0, None]], "range", [1, 5, 10, 0]),
        ([[1.0, 1.0]], "range", [10, 10]),
        ([[2.0, -1.0, 0.0]], "signed", [10, -5, 1]),
        ([[0.0, 1.0, 2.0]], "counts", [0, -5, -10]),
        ([[None]], "range", [0]),
        ([[1.0, float("nan"), float("inf")]], "signed", [10, 0, 0]),
        ([[0.0, 0.0]], "counts", [0, 0]),
    ],
)
def test_shades_of_heads(values, scale, shades):
    assert make_shades(values, scale) == [shades]
