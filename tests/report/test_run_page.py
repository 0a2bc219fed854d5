from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from auber.report.answer import find_interval
from auber.report.figures import Point, find_sizes
from auber.report.layers import read_runs
from auber.report.page import make_page, render_page
from tests.report.made_runs import LAYERS, write_ranked, write_searched, write_sized
from tests.report.results import make_result, write_run


def titles(page):
    return re.findall("<h2 id=[^>]+>(.*)</h2>", render_page(page))[1:]


def names(page):
    return [drawing.name for drawing in page.drawings]


def layers_table(page):
    """The table of layers: its columns, rows and notes."""
    (grid,) = page.parts[0].grids["layers"]
    return [*grid.rows[0]], [[*row.values()] for row in grid.rows], grid.notes


def change_stages(folder, changes):
    """Change the searches of a run, by layer."""
    for layer, change in changes.items():
        path = folder / "stages" / f"layer-{layer:02}.json"
        stage = json.loads(path.read_text())
        stage["search"] |= change
        path.write_text(json.dumps(stage))


def test_one_run(tmp_path):
    page = make_page([write_searched(tmp_path)])
    assert (page.title, page.subtitle) == ("auber on rte", "mpnet-base; rte; protocol seen; seed 0")
    (verdict,) = page.verdicts
    assert verdict.headline == "With 75 % of the heads, dev accuracy is 61.7."
    text = " ".join(verdict.points)
    for words in ("Train accuracy is 95.0, +33.3 points against dev.",):
        assert words in text
    assert titles(page) == [
        *("Heads and neurons", "Search", "Training and costs", "Configuration", "Provenance")
    ]
    assert names(page) == ["heads", "search"]
    (maps,) = page.parts[0].maps.values()
    assert [found.title for found in maps] == [
        "3 of 12 heads removed",
        "State before any removal",
        "The agent's values, points of reward",
    ]
    first = maps[0]
    assert first.shades[0] == [0, -10, 0, -10]
    assert first.removed == {(0, 1), (0, 3), (2, 0)}
    assert not first.bars, "no neuron was removed"
    _, rows, _ = layers_table(page)
    assert rows[0] == [
        *("0", "1, 3", "2", "70.00", "71.00", "72.00", "1.00", "60", "12", "9", "3.5"),
    ]
    assert rows[1][1:3] == ["none", "4"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dev.one_class": True}, "Warning: the model gives every dev row the same answer"),
        ({"dev.score": 0.5271}, "Warning: the score is exactly that of always giving the most"),
        ({"dev.score": 0.5}, "Warning: always giving the most frequent class scores 52.71."),
    ],
)
def test_a_score_without_meaning_is_marked(tmp_path, change, words):
    (verdict,) = make_page([write_searched(tmp_path, **change)]).verdicts
    assert any(point.startswith(words) for point in verdict.points)


@pytest.mark.parametrize("is_first_edition", [False, True])
def test_a_choice_below_the_plan_that_its_search_started_from(tmp_path, is_first_edition):
    folder = write_searched(tmp_path)
    change = {"given": [0, 3], "given_score": 0.715, "unpruned_score": 0.5}
    if is_first_edition:
        change |= {"given_score": None, "unpruned_score": 0.715}
    change_stages(folder, {2: change})
    page = make_page([folder])
    words = "below the plan the search started from on the reward set in layer 2."
    assert any(words in point for point in page.verdicts[0].points)
    columns, rows, notes = layers_table(page)
    assert (columns[3], rows[2][3]) == ("start", "71.50")
    assert "Start: of the plan the search started from. " in notes[0]


@pytest.mark.parametrize(
    ("updates", "layers"),
    [([None, None, None], None), ([3, 0, 9], "layer 1:"), ([0, 3, 0], "layers 0, 2:")],
)
def test_an_agent_that_made_no_update(tmp_path, updates, layers):
    folder = write_searched(tmp_path)
    change_stages(folder, {layer: {"updates": updates[layer]} for layer in range(LAYERS)})
    _, *warnings = layers_table(make_page([folder]))[2]
    assert len(warnings) == bool(layers)
    assert all(f"no update in {layers}" in words for words in warnings)


def test_a_choice_below_the_unpruned_layer(tmp_path):
    folder = write_searched(tmp_path)
    change_stages(folder, {2: {"rollout_score": 0.69}})
    (verdict,) = make_page([folder]).verdicts
    assert any("below the unpruned layer" in point for point in verdict.points)


def test_runs_without_stages(tmp_path):
    page = make_page([write_run(tmp_path, "bare", make_result("rte", "random", 0, 0.6))])
    assert names(page) == ["heads"]
    start = make_result("rte", "original", 0, 0.6, kind="finetune")
    page = make_page([write_run(tmp_path, "start", start)])
    assert (page.title, names(page)) == ("Fine-tuned start on rte", [])


def test_runs_side_by_side(tmp_path):
    page = make_page([write_searched(tmp_path), write_ranked(tmp_path, start="other weights")])
    assert page.title == "2 runs side by side"
    first, *others = page.verdicts
    assert (
        first.headline
        == "Best dev accuracy: michel, 64.0 with 75 % of the heads (also the smallest)."
    )
    (caution,) = first.points
    assert caution.startswith("Single runs do not show a difference between methods or settings. ")
    assert caution.endswith(" They did not start from the same fine-tuned weights.")
    assert [verdict.about for verdict in others] == ["auber", "michel"]
    assert not any("One run proves" in point for verdict in others for point in verdict.points)
    assert names(page) == ["sizes", "heads", "search-1"]
    (maps,) = page.parts[0].maps.values()
    assert maps[-1].title == "michel: Importance (how much the loss depends on the head)"


def test_runs_of_other_rows_are_not_compared(tmp_path):
    page = make_page([write_searched(tmp_path), write_ranked(tmp_path, data="other rows")])
    assert page.verdicts[0].headline.startswith("These runs have different rows or metrics")
    assert "Best" not in " ".join(page.verdicts[0].points)
    assert "sizes" not in names(page), "no line joins them"


def test_the_smallest_run_is_named_beside_the_best(tmp_path):
    runs = [write_searched(tmp_path), write_ranked(tmp_path, **{"heads.removed": 2})]
    (first, *_) = make_page(runs).verdicts
    assert first.headline == (
        "Best dev accuracy: michel, 64.0 with 83 % of the heads. "
        "Smallest: auber, 61.7 with 75 % of the heads."
    )


def test_of_equal_scores_the_smaller_run_is_the_best(tmp_path):
    runs = [write_sized(tmp_path, "a", sizes=[]), write_sized(tmp_path, "b", sizes=[])]
    result = json.loads((runs[1] / "result.json").read_text())
    result["remaining"]["multiply_adds"] = 0.125
    (runs[1] / "result.json").write_text(json.dumps(result))
    (first, *_) = make_page(runs).verdicts
    assert first.headline == (
        "Best dev accuracy: b, 91.0 with 12 % of the multiply-adds (also the smallest)."
    )


@pytest.mark.parametrize("change", [{"before.multiply_adds": 0.5}, {"before.score": 0.9}])
def test_only_one_unpruned_model_is_a_line_across(tmp_path, change):
    """Not a start that was pruned already, nor two different ones."""
    change = {"start": "other weights", **change}
    runs = read_runs([write_sized(tmp_path, "a"), write_sized(tmp_path, "b", **change)])
    pruned = "before.multiply_adds" in change
    panels, _ = find_sizes({"rte": {"b": runs[1:]} if pruned else {"a": runs}}, pooled=False)
    assert "unpruned" not in panels["rte"]


def test_differing_settings_come_first(tmp_path):
    config = {"seed": 0, "agent.episodes": 9, "own": "x"}
    page = make_page([write_searched(tmp_path), write_ranked(tmp_path, config=config)])
    differing, every = page.grids["settings"]
    assert [[*row.values()][:3] for row in differing.rows] == [
        ["agent.episodes", "150", "9"],
        ["last.epochs", "6", "not recorded"],
        ["random.draw", "0", "not recorded"],
        ["own", "not recorded", "x"],
    ]
    assert differing.rows[0]["meaning"]
    assert (differing.folded, every.folded, len(every.rows)) == (False, True, 5)


def test_several_sizes(tmp_path):
    page = make_page([write_sized(tmp_path)])
    assert page.subtitle == "mpnet-base; rte; seed 0", "without rewards there is no protocol"
    (verdict,) = page.verdicts
    assert verdict.about == "sized, 0.25 of 2 sizes"
    assert verdict.headline == (
        "With 25 % of the multiply-adds and 2.2 M parameters (unpruned: 4.0 M), dev accuracy is "
        "91.0 (unpruned: 95.0) on 500 rows, and a row of 10 tokens takes 2.5 ms (unpruned: 8.0 "
        "ms) on a CPU."
    )
    assert names(page) == ["sizes", "heads"]
    assert titles(page) == [
        "Heads and neurons",
        "Training and costs",
        "Configuration",
        "Provenance",
    ]


def test_why_a_size_was_chosen_comes_first(tmp_path):
    config = {"seed": 0, "size.tolerance": 5.0}
    (verdict,) = make_page([write_sized(tmp_path, config=config)]).verdicts
    assert verdict.points[0] == (
        "Chosen: 0.25, the smallest size tried, which loses at most 5 points (95 %)."
    )


def test_the_score_is_drawn_against_the_size(tmp_path):
    (run,) = read_runs([write_sized(tmp_path)])
    panels, axis = find_sizes({"rte": {"fisher": [run]}}, pooled=False)
    assert axis == "multiply-adds left, %"
    line = [(25.0, 91.0), (50.0, 94.8), (100.0, 95.0)]
    assert [pytest.approx(point[:2]) for point in panels["rte"]["fisher"]] == line
    assert panels["rte"]["unpruned"] == [Point(100, 95.0)]
    without = replace(run, record=run.record.model_copy(update={"remaining": None}))
    panels, axis = find_sizes({"rte": {"fisher": [without, without]}}, pooled=True)
    (point,) = panels["rte"]["fisher"]
    assert (axis, point.size) == ("heads left, %", 75.0)


def test_seeds_of_several_sizes_are_pooled_size_by_size(tmp_path):
    runs = read_runs([write_sized(tmp_path, name, seed=seed) for seed, name in enumerate("ab")])
    panels, _ = find_sizes({"rte": {"fisher": runs}}, pooled=True)
    assert [(point.size, point.score) for point in panels["rte"]["fisher"]] == [
        (25.0, pytest.approx(91.0)),
        (50.0, pytest.approx(94.8)),
    ]


def drawn_lines(page):
    """The labels of the lines of scores against sizes, with their sizes."""
    (axes,) = page.parts[0].figures["sizes"].figure.axes
    lines = {line.get_label(): line.get_xdata() for line in axes.lines}
    return {label: [*map(round, sizes)] for label, sizes in lines.items() if label != "unpruned"}


def test_each_run_has_a_line_from_the_unpruned_model(tmp_path):
    runs = [write_sized(tmp_path, "a"), write_sized(tmp_path, "b", sizes=[])]
    assert drawn_lines(make_page(runs)) == {"a": [25, 50, 100], "b": [25, 100]}


@pytest.mark.parametrize(
    ("dev", "rows", "interval"), [(1.0, 10, (67.4, 100.0)), (0.0, 10, (0.0, 32.6))]
)
def test_an_interval_ends_at_0_and_100(tmp_path, dev, rows, interval):
    (run,) = read_runs([write_searched(tmp_path, **{"dev.score": dev, "rows.dev": rows})])
    assert find_interval(run.record) == pytest.approx(interval, abs=0.1)


def test_the_agreement_of_rows_without_labels(tmp_path):
    orders = {"groups": 8, "same_first": 0.75, "ndcg": 0.96, "low_ndcg": 0.9, "spearman": 0.8}
    agreement = {"metrics": {"spearman": 0.9}, "orders": orders}
    changes = {"agreement": agreement, "answered": True, "metric": "spearman"}
    (verdict,) = make_page([write_sized(tmp_path, **changes)]).verdicts
    words = ", dev spearman with the unpruned model is 91.0 on 500 rows, and a row of 10 tokens "
    assert words in verdict.headline
    assert verdict.points[0] == (
        "Agreement with the unpruned model: spearman 90.0; within 8 groups: same first row in "
        "75.0 %, NDCG@10 0.960 (a tenth below 0.900), rank correlation 0.800."
    )
