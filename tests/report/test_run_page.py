from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from auber.report.answer import find_interval, standard_error
from auber.report.figures import TIMES, find_sizes, time_parts
from auber.report.layers import read_runs
from auber.report.page import make_page, make_run_page, render_page
from auber.report.records import RunRecord
from auber.run.result_record import TIME_PARTS
from auber.system.records import parse
from tests.report.made_runs import LAYERS, PLAN, write_ranked, write_searched
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
    assert verdict.headline == "accuracy 61.7 (dev, 277 rows): 3 of 12 heads removed."
    text = " ".join(verdict.points)
    for words in (
        "interval of the dev score, over rows and not over seeds: 55.9 to 67.3.",
        "Train 95.00, +33.27 points against dev.",
        "a standard error of about 2.9 points",
        "In 3 of 3 layers the search had scored a better mask than the chosen one, by up to 2.00 ",
        "3000 rewards requested, 1500 computed; 10 s in total.",
    ):
        assert words in text
    assert titles(page) == [
        "Scores",
        "Heads and neurons",
        "Search",
        "Time",
        "Configuration",
        "Provenance",
    ]
    assert names(page) == ["heads", "search", "time"]
    (maps,) = page.parts[0].maps.values()
    assert [found.title for found in maps] == [
        "3 of 12 heads removed",
        "State before any removal",
        "The agent's values, points of reward",
    ]
    first = maps[0]
    assert first.shades[0] == [0, -10, 0, -10]
    assert first.counts == ["-2", "", "-1"]
    _, rows, _ = layers_table(page)
    assert rows[0] == [
        *("0", "1, 3", "2", "70.00", "71.00", "72.00", "1.00", "60", "12", "9", "3.5"),
    ]
    assert rows[1][1:3] == ["none", "4"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dev.one_class": True}, "Careful: the model gives every dev row the same answer"),
        ({"dev.score": 0.5271}, "Careful: the score is exactly that of always giving the most"),
        ({"dev.score": 0.5}, "Careful: always giving the most frequent class scores 52.71."),
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
    assert names(page) == ["heads", "time"]
    start = make_result("rte", "original", 0, 0.6, kind="finetune")
    page = make_page([write_run(tmp_path, "start", start)])
    assert (page.title, names(page)) == ("Fine-tuned start on rte", ["time"])


def test_runs_side_by_side(tmp_path):
    page = make_page([write_searched(tmp_path), write_ranked(tmp_path, start="other weights")])
    assert page.title == "2 runs side by side"
    first, *others = page.verdicts
    assert first.headline == "Single runs do not show a difference between methods or settings."
    assert first.points[0] == "michel: +2.27 points on dev, +0 heads removed, against auber."
    assert first.points[-1].endswith(" They did not start from the same fine-tuned weights.")
    assert not any("One run proves" in point for verdict in others for point in verdict.points)
    assert names(page) == ["sizes", "heads", "search-1", "time"]
    (maps,) = page.parts[0].maps.values()
    assert maps[-1].title == "michel: Importance (how much the loss depends on the head)"


def test_runs_of_other_rows_are_not_compared(tmp_path):
    page = make_page([write_searched(tmp_path), write_ranked(tmp_path, data="other rows")])
    assert page.verdicts[0].headline.startswith("These runs have different rows or metrics")
    assert "dev, +0 heads" not in " ".join(page.verdicts[0].points)


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


def test_where_the_time_went(tmp_path):
    assert list(TIMES)[:-1] == list(TIME_PARTS)
    (run,) = read_runs([write_searched(tmp_path)])
    parts = time_parts(run.record)
    assert (parts["rewards"], parts["evaluation"], parts["other"]) == (4.0, 0.0, 0.5)


def test_only_an_accuracy_has_a_standard_error(tmp_path):
    (run,) = read_runs([write_searched(tmp_path, metric="matthews")])
    assert standard_error(run.record) is None
    (part,) = make_page([tmp_path / "auber"]).parts
    assert "standard error" not in part.grids["scores"][0].cells
    assert find_interval(run.record) is None


def test_neurons_and_what_remains_are_shown(tmp_path):
    folder = write_searched(
        tmp_path,
        plan={
            "heads": {str(layer): heads for layer, heads in PLAN.items()},
            "neurons": {"0": "0-98", "2": "5-6"},
        },
        neurons={"removed": 101, "total": 400, "per_layer": 100},
        remaining={"multiply_adds": 0.504, "parameters": 0.7, "length": 128},
    )
    page = make_page([folder])
    (verdict,) = page.verdicts
    assert verdict.headline.endswith(
        ", multiply-adds 50 %, parameters 70 %: 3 of 12 heads and 101 of 400 neurons removed."
    )
    drawing = page.parts[0].figures["widths"]
    labels = {text.get_text() for axes in drawing.figure.axes for text in axes.texts}
    assert {"1", "98"} <= labels


BEFORE = {"score": 0.95, "rows": 500, "multiply_adds": 1.0, "parameters": 100, "tokens": 128}
BEFORE["milliseconds"] = 8.0
AFTER = {**BEFORE, "score": 0.948, "multiply_adds": 0.5, "parameters": 70, "milliseconds": 4.0}
SIZES = [
    {
        "keep": x,
        "dev": {"score": score},
        "remaining": {"multiply_adds": x, "parameters": x, "length": 128},
        "after": AFTER,
        "held_out": {"rows": 100, "score": 0.95, "loss": 0.2, "bound": 0.5, "is_within": True},
    }
    for x, score in ((0.5, 0.948), (0.25, 0.91))
]


def measured(tmp_path, **changes):
    """A run of 500 dev rows that half of the model is left of."""
    remaining = {"multiply_adds": 0.5, "parameters": 0.7, "length": 128}
    folder = write_searched(tmp_path, remaining=remaining, **{"rows.dev": 500, "dev.score": 0.948})
    (run,) = read_runs([folder])
    content = {**run.record.to_json(), "before": BEFORE, "after": AFTER, **changes}
    return replace(run, record=parse(RunRecord, content, "run", "x"))


def test_the_answer_compares_with_the_fine_tuned_model(tmp_path):
    run = measured(tmp_path)
    (verdict,) = make_run_page([run]).verdicts
    assert verdict.headline == (
        "accuracy 95.0 -> 94.8 (dev, 500 rows), multiply-adds 50 %, parameters 100 -> 70, 8.0 ms "
        "-> 4.0 ms per row of 128 tokens on NVIDIA H200: 3 of 12 heads removed."
    )
    assert "interval of the difference, over rows and not over seeds: -3.0 to +2.6" in " ".join(
        verdict.points
    )


def test_the_score_is_drawn_against_the_size(tmp_path):
    run = measured(tmp_path, sizes=SIZES)
    panels, axis = find_sizes({"rte": {"auber": [run]}}, pooled=False)
    assert axis == "multiply-adds left, %"
    points = {point.size: point.score for point in panels["rte"]["auber"]}
    assert points == {25.0: pytest.approx(91.0), 50.0: pytest.approx(94.8), 100.0: 95.0}
    page = make_run_page([run])
    assert "sizes" in names(page)
    sizes = [[*row.values()] for row in page.parts[0].grids["scores"][1].rows]
    assert sizes[0] == ["50 %", "94.80", "50.0 %", "50.0 %", "4", "0.2, at most 0.5 (95 %)"]
    without = replace(run, record=run.record.model_copy(update={"remaining": None}))
    panels, axis = find_sizes({"rte": {"auber": [without, without]}}, pooled=True)
    (point,) = panels["rte"]["auber"]
    assert (axis, point.size) == ("heads left, %", 75.0)


@pytest.mark.parametrize(
    ("dev", "rows", "interval"), [(1.0, 10, (67.4, 100.0)), (0.0, 10, (0.0, 32.6))]
)
def test_an_interval_ends_at_0_and_100(tmp_path, dev, rows, interval):
    (run,) = read_runs([write_searched(tmp_path, **{"dev.score": dev, "rows.dev": rows})])
    assert find_interval(run.record) == pytest.approx(interval, abs=0.1)


def test_the_orders_of_each_size(tmp_path):
    orders = {"groups": 8, "same_first": 0.75, "ndcg": 0.96, "low_ndcg": 0.9, "spearman": 0.8}
    agreement = {"metrics": {"spearman": 0.9}, "orders": orders}
    sizes = [{**size, "agreement": agreement} for size in SIZES]
    run = measured(tmp_path, sizes=sizes, agreement=agreement, answered=True, metric="spearman")
    page = make_run_page([run])
    cells = page.parts[0].grids["scores"][1].rows[0]
    assert cells["same first row"] == "75.0 % of 8 groups"
    assert (cells["NDCG@10"], cells["rank correlation"]) == ("0.960", "0.800")
    (verdict,) = page.verdicts
    assert verdict.headline.startswith("spearman with the unpruned model 94.8 (dev, 500 rows), ")
    assert verdict.points[0] == (
        "Agreement with the unpruned model: spearman 90.0; within 8 groups: same first row in "
        "75.0 %, NDCG@10 0.960 (a tenth below 0.900), rank correlation 0.800."
    )
