from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from auber.report.figures import (
    Bar,
    Curve,
    HeadMap,
    ScoreRow,
    draw_bars,
    draw_heads,
    draw_scores,
    draw_searches,
    to_svg,
    write_figure,
)
from tests.report.html.made import HOSTILE

ROWS = [
    ScoreRow("auber", (60.0, 70.0), 65.0, 1.5, 128.5, strong=True),
    ScoreRow("random", (64.0, 66.0), 65.0, 63.0, 67.0),
]


def texts(figure):
    """The words of a figure; SVG that is not well formed fails."""
    root = ElementTree.fromstring(to_svg(figure))
    return [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]


def scores():
    return draw_scores(ROWS, "dev accuracy", 62.0, "95 % interval")


def test_scores():
    figure = scores()
    words = texts(figure)
    assert {"auber", "random", "dev accuracy", "one run", "majority class, 62.00"} <= set(words)
    left, right = figure.axes[0].get_xlim()
    assert left > 50
    assert right < 80, "a wide interval does not set the axis"


def test_bars():
    bars = [Bar("auber", {"rewards": 2.0, "last": 1.0}, note="3 s"), Bar("x", {"last": 1.0}, 3.0)]
    figure = draw_bars(bars, {"rewards": "#0b5fa5", "last": "#b5482a", "no": "#ffffff"}, "seconds")
    words = texts(figure)
    assert {"auber", "rewards", "last", "seconds", "3 s"} <= set(words)
    assert "no" not in words
    places = [(patch.get_x(), patch.get_width()) for patch in figure.axes[0].patches]
    assert places == [(0.0, 2.0), (3.0, 0.0), (2.0, 1.0), (3.0, 1.0)]


def test_searches():
    curves = [Curve("a", [(1, 0.0), (5, 2.0)], 11), Curve("b", [(1, 0.0)], 11)]
    (axes,) = draw_searches({"both": curves}).axes
    mean = max(axes.lines, key=lambda line: line.get_linewidth())
    assert dict(zip(*mean.get_data(), strict=True)) == {1: 0.0, 10: 1.0, 11: 1.0}
    alone = draw_searches({"a": curves[:1], "b": curves[1:]})
    assert {"a", "b", "different masks scored"} <= set(texts(alone))


def make_map(values, **options):
    return HeadMap("t", values, [["head"] * len(row) for row in values], **options)


@pytest.mark.parametrize(
    ("values", "options", "shades"),
    [
        ([[1.0, 2.0, 3.0, None]], {}, [1, 5, 10, 0]),
        ([[1.0, 1.0]], {}, [10, 10]),
        ([[2.0, -1.0, 0.0]], {"is_signed": True}, [10, -5, 1]),
        ([[0.0, 1.0, 2.0]], {"from_zero": True, "is_gain": False}, [0, -5, -10]),
    ],
)
def test_shades_of_heads(values, options, shades):
    found = make_map(values, **options)
    assert [found.shade(0, column) for column in range(len(values[0]))] == shades


def test_maps_of_heads_are_drawn():
    maps = [
        make_map([[1.0, None], [0.5, 2.0]], removed=frozenset({(0, 1)})),
        make_map([[1.0, -2.0], [0.5, 2.0]], is_signed=True, stop=True),
        make_map([[0.0, 0.0]], from_zero=True),
    ]
    assert {"stop", "head", "layer"} <= set(texts(draw_heads(maps)))


@pytest.mark.parametrize("suffix", ["svg", "pdf", "png"])
def test_the_same_numbers_give_the_same_bytes(tmp_path, suffix):
    paths = [tmp_path / f"{name}.{suffix}" for name in "ab"]
    for path in paths:
        write_figure(scores(), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize("name", [*HOSTILE, "$x^2$", r"\frac{", "名前"])
def test_names_are_drawn_as_they_are(tmp_path, name):
    bars = [Bar(name, {name: 1.0}, note=name)]
    figure = draw_bars(bars, {name: "#0b5fa5"}, name)
    assert texts(figure).count(name) >= 2
    write_figure(figure, Path(tmp_path / "x.pdf"))
