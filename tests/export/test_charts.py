from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from auber.export import charts

SVG = "{http://www.w3.org/2000/svg}"


def test_an_even_scale_and_one_by_logarithms():
    even = charts.Scale(0, 10, 100, 0)
    assert [even(value) for value in (0, 2.5, 10)] == [100, 75, 0]
    by_logarithms = charts.Scale(1, 100, 0, 50, logarithmic=True)
    assert [by_logarithms(value) for value in (1, 10, 100)] == pytest.approx([0, 25, 50])


def test_words_are_escaped_wherever_they_stand():
    panel = charts.Panel(charts.Scale(0, 1, 0, 10), charts.Scale(0, 1, 10, 0))
    words = 'a < b & "c"'
    parts = [
        charts.text(1, 2, words, charts.INK),
        panel.dot(0, 0, charts.INK, words),
        panel.curve([(0, 0), (1, 1)], charts.INK, 1, title=words),
        *charts.legend(0, 0, words, charts.INK, 1),
    ]
    root = ET.fromstring(charts.document(20, 20, words, parts))
    assert root.get("aria-label") == words
    assert [item.text for item in root.iter() if item.text and item.text.strip()] == [words] * 4


def test_a_curve_goes_through_its_points():
    panel = charts.Panel(charts.Scale(0, 10, 100, 200), charts.Scale(0, 4, 50, 10))
    line = ET.fromstring(
        panel.curve([(0, 0), (5, 1), (10, 4)], "#123456", 2, dashes=charts.DOTS, opacity=0.25)
    )
    assert line.get("points") == "100.0,50.0 150.0,40.0 200.0,10.0"
    assert (line.get("stroke-dasharray"), line.get("stroke-opacity")) == ("1 3", "0.25")
    plain = ET.fromstring(panel.curve([(0, 0), (5, 1)], "#123456", 2))
    assert (plain.get("stroke-dasharray"), plain.get("stroke-opacity")) == (None, None)


def test_axes_are_labelled_where_asked():
    panel = charts.Panel(charts.Scale(0, 10, 40, 140), charts.Scale(0, 4, 100, 0))
    axes = panel.axes(
        x_title="size", x_marks=[0, 5], x_labels=[(5, "five")], y_labels=[(0, "0"), (4, "four")]
    )
    root = ET.fromstring(charts.document(200, 200, "", axes))
    places = {
        item.text: (float(item.get("x")), float(item.get("y"))) for item in root.iter(f"{SVG}text")
    }
    assert places == {"0": (34, 104), "four": (34, 4), "five": (90, 116), "size": (90, 132)}
    assert len(root.findall(f"{SVG}line")) == 2 + 2 + 2


def test_ticks_are_round_and_few():
    assert charts.logarithmic_ticks(0.7, 21) == [1, 2, 5, 10, 20]
    assert charts.logarithmic_ticks(0.01, 1000) == [0.01, 0.1, 1, 10, 100, 1000]
    assert charts.linear_ticks(6) == [0, 1, 2, 3, 4, 5, 6]
    assert charts.linear_ticks(7) == [0, 2, 4, 6]
    assert charts.linear_ticks(0.3) == [0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]
    assert charts.linear_ticks(1234) == [0, 500, 1000]


@pytest.mark.parametrize("high", [1e-6, 0.017, 0.9999, 1, 3, 59, 99.9, 1e5])
def test_even_ticks_fill_the_axis(high):
    ticks = charts.linear_ticks(high)
    assert 3 <= len(ticks) <= 7
    assert high / 2 < ticks[-1] <= high * (1 + 1e-9)


def test_labels_keep_apart():
    assert charts.spaced([0, 10, 35, 40, 80], float, 36) == [0, 40, 80]


def test_colours_come_round():
    assert charts.colour_of(0) == charts.colour_of(len(charts.COLOURS)) != charts.colour_of(1)
