from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from auber.report.figures import (
    Curve,
    HeadMap,
    ScoreRow,
    draw_bars,
    draw_heads,
    draw_scores,
    draw_searches,
    make_shades,
    to_svg,
    write_figure,
)
from tests.report.html.made import HOSTILE

ROWS = {
    "auber": ScoreRow((60.0, 70.0), 65.0, 1.5, 128.5, strong=True),
    "random": ScoreRow((64.0, 66.0), 65.0, 63.0, 67.0),
}


def texts(figure):
    """The words of a figure; SVG that is not well formed fails."""
    root = ElementTree.fromstring(to_svg(figure))
    return [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]


def scores():
    return draw_scores({"rte": ROWS}, {"rte": 62.0})


def test_scores():
    figure = scores()
    words = texts(figure)
    assert {"auber", "random", "points", "one run", "majority class"} <= set(words)
    left, right = figure.axes[0].get_xlim()
    assert left > 50
    assert right < 80, "a wide interval does not set the axis"


def test_bars():
    bars = {"auber": {"rewards": 2.0, "last": 1.0}, "x": {"last": 1.0}}
    colours = {"rewards": "#0b5fa5", "last": "#b5482a", "no": "#ffffff"}
    figure = draw_bars({"": bars}, colours, "seconds")
    words = texts(figure)
    assert {"auber", "rewards", "last", "seconds", "3", "1"} <= set(words)
    assert "no" not in words
    places = [(patch.get_x(), patch.get_width()) for patch in figure.axes[0].patches]
    assert places == [(0.0, 2.0), (0.0, 0.0), (2.0, 1.0), (0.0, 1.0)]


def test_searches():
    curves = [Curve([(1, 0.0), (5, 2.0)], 11), Curve([(1, 0.0)], 11)]
    (axes,) = draw_searches({"both": curves}).axes
    mean = max(axes.lines, key=lambda line: line.get_linewidth())
    assert dict(zip(*mean.get_data(), strict=True)) == {1: 0.0, 10: 1.0, 11: 1.0}
    alone = draw_searches({"a": curves[:1], "b": curves[1:]})
    assert {"a", "b", "different masks scored"} <= set(texts(alone))


def test_rows_of_one_name_share_a_line():
    panels = {"rte": ROWS, "mrpc": {"random": ROWS["random"]}}
    first, second = draw_scores(panels, {}).axes
    assert [label.get_text() for label in first.get_yticklabels()] == ["auber", "random"]
    assert {y for line in second.lines for y in line.get_ydata()} == {1.0}


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


def test_maps_of_heads_are_drawn():
    texts_of_heads = [["", "", ""], ["", "", ""]]
    maps = [
        HeadMap(
            "one", [[5, 0], [1, 10]], texts_of_heads, "l", frozenset({(0, 1)}), counts=["-1", ""]
        ),
        HeadMap("two", [[1, -2, 0], [-9, 2, 3]], texts_of_heads, stop=True),
    ]
    assert {"stop", "head", "layer", "one. l", "two."} <= set(texts(draw_heads([maps, maps[:1]])))


@pytest.mark.parametrize("name", [*HOSTILE, "$x^2$", r"\frac{", "名前"])
def test_names_are_drawn_as_they_are(tmp_path, name):
    figure = draw_bars({name: {name: {name: 1.0}}}, {name: "#0b5fa5"}, name)
    assert texts(figure).count(name) >= 2
    write_figure(figure, Path(tmp_path / "x.pdf"))
