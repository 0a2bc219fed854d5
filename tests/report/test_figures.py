from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from auber.report.analysis import analyse
from auber.report.figures import (
    Point,
    draw_heads,
    draw_scores,
    draw_searches,
    draw_sizes,
    find_sizes,
    to_svg,
    write_figure,
)
from auber.report.head_maps import HeadMap
from auber.report.layers import read_sources
from auber.report.records import group
from auber.report.runs import pool_runs
from tests.report.made_runs import HOSTILE
from tests.report.results import write_study

SCORES = {
    "rte": {"auber": [60.0, 70.0], "random": [64.0, 66.0]},
    "mrpc": {"random": [64.0, 66.0]},
}


def texts(figure):
    """The words of a figure; SVG that is not well formed fails."""
    root = ElementTree.fromstring(to_svg(figure))
    return [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]


def scores(folder):
    write_study(folder, SCORES)
    sources, runs = read_sources([folder])
    (section,) = analyse(pool_runs(sources)).sections
    by_task = group(runs, lambda run: run.record.task)
    cells = {
        task: group(of_task, lambda run: run.record.method) for task, of_task in by_task.items()
    }
    return draw_scores(section, cells)


def test_scores(tmp_path):
    figure = scores(tmp_path)
    words = texts(figure)
    assert {"auber", "random", "points", "one run", "majority class"} <= set(words)
    left, right = figure.axes[1].get_xlim()
    assert left > 50
    assert right < 80, "a wide interval does not set the axis"


def test_searches():
    layers = [
        SimpleNamespace(gains=gains, masks_scored=11, gain=None)
        for gains in ([(1, 0.0), (5, 2.0)], [(1, 0.0)])
    ]
    (axes,) = draw_searches({"both": layers}).axes
    mean = max(axes.lines, key=lambda line: line.get_linewidth())
    assert dict(zip(*mean.get_data(), strict=True)) == {1: 0.0, 10: 1.0, 11: 1.0}
    alone = draw_searches({"a": layers[:1], "b": layers[1:]})
    assert {"a", "b", "different masks scored"} <= set(texts(alone))


def test_sizes():
    line = [Point(25.0, 90.0), Point(50.0, 94.0, 93.0, 95.0), Point(100.0, 95.0)]
    panels = {"rte": {"fisher": line, "random": [Point(50.0, 80.0, -9.0, 99.0)]}}
    panels["rte"]["unpruned"] = [Point(100, 95.0)]
    figure = draw_sizes(panels, "multiply-adds left, %")
    assert {"rte", "fisher", "random", "multiply-adds left, %", "unpruned"} <= set(texts(figure))
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.lines}
    assert [*lines["fisher"].get_xdata()] == [25.0, 50.0, 100.0]
    assert [*lines["fisher"].get_ydata()] == [90.0, 94.0, 95.0]
    across = lines["unpruned"]
    assert ([*across.get_ydata()], across.get_linestyle()) == ([95.0, 95.0], "--")
    assert axes.get_ylim()[0] > 70, "a wide interval does not set the axis"


def test_maps_of_both_kinds_of_unit():
    shades, texts_of = [[-10, 0], [0, 0]], [["", ""], ["", ""]]
    bare = HeadMap("bare", shades, texts_of, removed=frozenset({(0, 0)}))
    wide = replace(bare, title="wide", neurons=[30, 0], width=60)
    figure = draw_heads([[bare, wide]])
    assert {"bare.", "wide.", "30", "layer", "head"} <= set(texts(figure))
    left, right = figure.axes
    assert [len(axes.lines) for axes in (left, right)] == [1, 1], "one head is crossed"
    assert [patch.get_width() for patch in left.patches] == []
    assert [patch.get_width() for patch in right.patches] == [3.0, 0.0]


@pytest.mark.parametrize("name", ["a", "runs/of-a-folder-with-a-long-name/seed-0/original+tuning"])
def test_the_legend_is_within_the_figure(name):
    figure = draw_sizes({"rte": {name: [Point(50.0, 90.0)], "b": [Point(25.0, 80.0)]}}, "size")
    to_svg(figure)
    box, whole = figure.legends[0].get_window_extent(), figure.bbox
    assert whole.x0 <= box.x0 < box.x1 <= whole.x1


def test_intervals_of_scores_against_sizes_end_where_the_metric_does(tmp_path):
    write_study(tmp_path, {"rte": {"auber": [99.0, 60.0]}})
    _, runs = read_sources([tmp_path])
    panels, _ = find_sizes({"rte": {"auber": runs}}, pooled=True)
    (point,) = panels["rte"]["auber"]
    assert (point.score, point.low, point.high) == (pytest.approx(79.5), 0.0, 100.0)


@pytest.mark.parametrize("name", [*HOSTILE, "$x^2$", r"\frac{", "名前"])
def test_names_are_drawn_as_they_are(tmp_path, name):
    figure = draw_sizes({name: {name: [Point(50.0, 90.0)]}}, name)
    assert texts(figure).count(name) >= 2
    write_figure(figure, Path(tmp_path / "x.pdf"))
