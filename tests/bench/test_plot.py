from __future__ import annotations

import xml.etree.ElementTree as ET

from auber.bench.plot import draw_growth
from tests.bench.records import make_growth

SVG = "{http://www.w3.org/2000/svg}"


def test_every_point_is_drawn_inside_the_picture():
    lines = [("one <device>", make_growth()), ("another", make_growth(3.0))]
    root = ET.fromstring(draw_growth(lines))
    width, height = float(root.get("width")), float(root.get("height"))
    circles = root.findall(f".//{SVG}circle")
    assert len(circles) == 2 * 3 * 4
    for item in root.iter():
        for key in ("x", "cx", "x1", "x2"):
            assert 0 <= float(item.get(key, 0)) <= width
        for key in ("y", "cy", "y1", "y2"):
            assert 0 <= float(item.get(key, 0)) <= height
    words = [item.text for item in root.iter(f"{SVG}text")]
    for expected in (
        "one <device>",
        "another",
        "rows",
        "slope 0.90, floor 0.90",
        "slope 0.05, floor 0.05",
        "1,660",
    ):
        assert expected in words


def test_a_larger_time_is_higher():
    circles = ET.fromstring(draw_growth([("one", make_growth())])).findall(f".//{SVG}circle")
    heights = [float(circle.get("cy")) for circle in circles[:4]]
    assert heights == sorted(heights, reverse=True)


def test_the_same_numbers_give_the_same_bytes():
    assert draw_growth([("one", make_growth())]) == draw_growth([("one", make_growth())])
