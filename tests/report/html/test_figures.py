"""The drawings: what numbers become, well-formed whatever the names, the same bytes each time."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from auber.export import charts
from auber.models.plan import PruningPlan
from auber.report.html import bars, lines, maps
from auber.report.html.palette import FIGURE_INKS, GAIN, KEPT, LOSS
from tests.report.html.made import HOSTILE

PLAN = PruningPlan({0: [1, 3], 2: [0]})
SVG = "{http://www.w3.org/2000/svg}"


def head_words(layer, head):
    return f"layer {layer}, head {head}"


def squares(svg):
    """The marks with titles, by title."""
    root = ElementTree.fromstring(svg)
    return {
        mark.find(f"{SVG}title").text: mark.attrib
        for mark in root.iter(f"{SVG}rect")
        if mark.find(f"{SVG}title") is not None
    }


def test_a_plan_shows_what_went():
    svg = maps.draw_plan(PLAN, 3, 4, title=head_words, label="a plan")
    found = squares(svg)
    assert len(found) == 12
    removed = {title for title, mark in found.items() if mark["fill"] == LOSS}
    assert removed == {"layer 0, head 1", "layer 0, head 3", "layer 2, head 0"}
    assert {mark["fill"] for mark in found.values()} == {LOSS, KEPT}
    (crosses,) = [part for part in re.findall(r' d="([^"]*)"', svg) if part.count("M") == 6]
    assert crosses.count("L") == 6, "two strokes for each of three heads"
    assert 'data-columns="4"' in svg
    assert ">-2<" in svg, "layer 0 lost two"


def test_scores_are_shades_from_the_lowest_to_the_highest():
    scores = {0: {0: 1.0, 1: 3.0}, 1: {0: 2.0}}
    found = squares(
        maps.draw_scores(scores, PruningPlan({0: [1]}), 2, 2, title=head_words, label="scores")
    )
    assert found["layer 0, head 0"]["fill-opacity"] == "0.08"
    assert found["layer 1, head 0"]["fill-opacity"] == "0.54"
    assert "fill-opacity" not in found["layer 0, head 1"]
    assert found["layer 1, head 1"]["fill"] == charts.FAINT, "no number is known of it"


def test_equal_scores_do_not_divide_by_nothing():
    found = squares(
        maps.draw_scores(
            {0: {0: 1.0, 1: 1.0}}, PruningPlan(), 1, 2, title=head_words, label="equal"
        )
    )
    assert {mark["fill"] for mark in found.values()} == {GAIN}


def test_values_have_a_sign_and_a_column_for_stopping():
    values = {0: {0: 2.0, 1: -1.0}}
    found = squares(
        maps.draw_values(
            values,
            {0: 0.0},
            PruningPlan(),
            1,
            2,
            action="remove head",
            title=head_words,
            label="values",
        )
    )
    assert (found["layer 0, head 0"]["fill"], found["layer 0, head 1"]["fill"]) == (GAIN, LOSS)
    assert found["layer 0, head 1"]["fill-opacity"] == "0.54"
    assert "layer 0, stopping at once: value +0.000 points" in found


def test_the_scale_of_values_is_that_of_the_largest_gain_or_loss():
    svg = maps.draw_values(
        {0: {0: 2.0, 1: -11.84}},
        {},
        PruningPlan(),
        1,
        2,
        action="change head",
        title=head_words,
        label="x",
    )
    assert "loss, full colour at 11.84" in svg
    assert "change head, or stop" in svg


@pytest.mark.parametrize("num_heads", [2, 8, 12, 16])
@pytest.mark.parametrize("kind", ["plan", "scores", "values"])
def test_a_legend_has_room_below_any_number_of_heads(kind, num_heads):
    plan, numbers = (
        PruningPlan({0: [1]}),
        {0: {head: 0.0125 + 0.1 * head for head in range(num_heads)}},
    )
    words = {"title": head_words, "label": "a map"}
    svg = {
        "plan": lambda: maps.draw_plan(plan, 1, num_heads, **words),
        "scores": lambda: maps.draw_scores(numbers, plan, 1, num_heads, **words),
        "values": lambda: maps.draw_values(
            numbers, {0: 0.0}, plan, 1, num_heads, action="change head", **words
        ),
    }[kind]()
    root = ElementTree.fromstring(svg)
    texts = [text for text in root.iter(f"{SVG}text") if text.get("y") is not None]
    lowest = max(float(text.attrib["y"]) for text in texts)
    legend = sorted(
        (float(text.attrib["x"]), text.text) for text in texts if float(text.attrib["y"]) == lowest
    )
    ends = [x + 5.5 * len(said) for x, said in legend]  # a letter's mean width at this size
    assert len(legend) == 3
    assert all(end <= x for end, (x, _) in zip(ends, legend[1:], strict=False)), (
        "no word lies on the next"
    )
    assert ends[-1] <= float(root.attrib["viewBox"].split()[2])


def test_shares_count_runs():
    found = squares(maps.draw_shares({0: {1: 2}}, 4, 1, 2, label="shares"))
    assert found["layer 0, head 1: removed in 2 of 4"]["fill-opacity"] == "0.50"
    assert found["layer 0, head 0: removed in 0 of 4"]["fill"] == KEPT


def test_a_search_is_drawn_as_steps():
    curves = [lines.LayerCurve(5, [(1, 0.0), (4, 1.0)], 10, -0.5)]
    svg = lines.draw_layers(curves, label="search")
    assert "layer 5: best +1.00 points after 10 masks, chosen -0.50 points" in squares(svg)
    (points,) = re.findall(r'<polyline points="([^"]*)"', svg)
    xs, ys = zip(*(map(float, point.split(",")) for point in points.split()), strict=True)
    assert len(xs) == 4
    assert (ys[0], ys[2]) == (ys[1], ys[3])
    assert ys[0] > ys[2], "more is higher"
    assert xs[1] == xs[2]


def test_the_mean_of_searches_is_that_of_their_best_so_far():
    svg = lines.draw_together(
        [("a", [(1, 0.0), (5, 2.0)], 11), ("b", [(1, 0.0)], 11)], label="together"
    )
    assert "<title>a: best +2.00 points after 11 masks</title>" in svg
    mean = re.findall(r'<polyline points="([^"]*)"', svg)[-1].split()
    ends = [float(point.split(",")[1]) for point in (mean[0], mean[-1])]
    top = float(re.findall(r'<polyline points="([^"]*)"', svg)[0].split()[-1].split(",")[1])
    assert ends[1] == pytest.approx((ends[0] + top) / 2, abs=0.1)


def test_an_interval_beyond_the_axis_ends_in_an_arrow():
    rows = [
        bars.ScoreRow("auber", (("seed 0", 60.0), ("seed 1", 70.0)), 65.0, 1.5, 128.5, strong=True),
        bars.ScoreRow("random", (("seed 0", 64.0), ("seed 1", 66.0)), 65.0, 63.0, 67.0),
    ]
    svg = bars.draw_scores(rows, x_title="dev", majority=62.0, label="scores")
    assert svg.count('fill="none" stroke="#777777"') == 2, (
        "one arrow at each end of the first interval"
    )
    assert "<title>auber: 65.00, interval 1.50 to 128.50, 2 runs</title>" in svg
    assert "<title>random, seed 1: 66.00</title>" in svg
    assert "majority class, 62.00" in svg
    assert max(float(x) for x in re.findall(r'x[12]="([\d.]+)"', svg)) <= 336


def test_single_scores_are_not_called_means():
    svg = bars.draw_scores(
        [bars.ScoreRow("a", (("dev", 50.0),), 50.0, None, None)],
        x_title="x",
        majority=None,
        label="l",
    )
    assert ">mean<" not in svg
    assert ">score<" in svg


def test_bars_add_up_to_the_time():
    svg = bars.draw_times(
        [("a", {"rewards": 3.0, "last": 1.0}), ("b", {"last": 2.0})], label="time"
    )
    found = squares(svg)
    widths = [float(mark["width"]) for mark in found.values()]
    assert widths[0] == pytest.approx(3 * widths[1], abs=0.2)
    assert list(found) == [
        "a, rewards: 3.0 s of 4.0 s",
        "a, last tuning: 1.0 s of 4.0 s",
        "b, last tuning: 2.0 s of 2.0 s",
    ]


def test_stages_follow_on_each_other():
    rows = [
        bars.TimelineRow(f"layer {layer}", 2.0, 1.0, 4.0, "-1", f"stage {layer}")
        for layer in range(2)
    ]
    found = squares(bars.draw_timeline(rows, label="when"))
    first, second = found["stage 0"], found["stage 1"]
    assert float(second["x"]) == pytest.approx(float(first["x"]) + float(first["width"]), abs=0.2)


def test_long_names_keep_their_ends():
    assert bars.shortened("auber", 60) == "auber"
    assert bars.shortened("a-very-long-place/auber-0", 62) == "…e/auber-0"


def all_figures(name):
    """One of each with this name wherever one goes."""
    row = bars.ScoreRow(name, ((name, 60.0), ("b", 61.0)), 60.5, 60.0, 61.0)

    def title(layer, head):
        return name

    return [
        maps.draw_plan(PLAN, 3, 4, title=title, label=name),
        maps.draw_scores({0: {0: 1.0}}, PLAN, 3, 4, title=title, label=name),
        maps.draw_values({0: {0: 1.0}}, {0: 0.5}, PLAN, 3, 4, action=name, title=title, label=name),
        maps.draw_shares({0: {1: 2}}, 4, 3, 4, label=name),
        lines.draw_layers([lines.LayerCurve(0, [(1, 0.0)], 5, None)], label=name),
        lines.draw_together([(name, [(1, 0.0), (3, 1.0)], 5)], label=name),
        bars.draw_scores([row], x_title=name, majority=None, label=name),
        bars.draw_times([(name, {"rewards": 1.0})], label=name),
        bars.draw_timeline([bars.TimelineRow(name, 1.0, 1.0, 2.0, name, name)], label=name),
    ]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_stay_text(name):
    for svg in all_figures(name):
        root = ElementTree.fromstring(svg)
        assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
            "svg", "rect", "line", "text", "title", "polyline", "circle", "path",
        }  # fmt: skip
        assert root.attrib["aria-label"] == name
        assert not any(
            attribute.startswith("on") for element in root.iter() for attribute in element.attrib
        )


def test_every_colour_has_its_dark_one():
    """The style sheet finds a figure's colours by these very attributes."""
    known = {ink.light for ink in FIGURE_INKS}
    for svg in all_figures("a"):
        assert set(re.findall(r'(?:fill|stroke)="(#[^"]+)"', svg)) <= known


def test_the_same_numbers_make_the_same_bytes():
    assert all_figures("a") == all_figures("a")
