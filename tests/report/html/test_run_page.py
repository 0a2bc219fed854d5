from __future__ import annotations

import json

import pytest

from auber.report.html import make_page
from auber.report.html.page import TIMES, settings_rows, time_parts
from auber.report.html.run_page import make_run_page, standard_error
from auber.report.layers import read_runs
from auber.report.results_file import ResultsFile
from auber.run.records import TIME_PARTS
from tests.report.html.made import LAYERS, PLAN, write_ranked, write_searched
from tests.report.made import make_regret, make_speed
from tests.report.results import make_result, write_run


def titles(page):
    return [section.title for section in page.sections if section.blocks]


def names(page):
    return [drawing.name for drawing in page.drawings]


def layers_table(page):
    """The table of layers: its columns, rows and notes."""
    course = next(section for section in page.sections if section.anchor == "course")
    (block,) = [block for block in course.blocks if block.rows]
    return [*block.rows[0]], [[*row.values()] for row in block.rows], block.notes


def change_stages(folder, changes):
    """Change the searches of a run, by layer."""
    for layer, change in changes.items():
        path = folder / "stages" / f"layer-{layer:02}.json"
        stage = json.loads(path.read_text())
        stage["search"] |= change
        path.write_text(json.dumps(stage))


def test_one_run(tmp_path):
    page = make_page([write_searched(tmp_path)])
    assert (page.title, page.subtitle) == ("auber on rte", "mpnet-base, protocol seen, seed 0")
    (verdict,) = page.verdicts
    assert verdict.headline == "Dev accuracy 61.73, 3 of 12 heads removed."
    assert verdict.points == (
        "Train 95.00, 33.27 points above dev.",
        "One run proves nothing. A score on 277 rows has a standard error of about 2.9 points. For "
        "a verdict: auber study with several seeds and the control original+tuning, then auber "
        "report of its folder.",
        "In 3 of 3 layers the search had scored a better mask than the chosen one, by up to 2.00 "
        "points of reward.",
        "3000 rewards requested, 1500 computed; 10 s in total.",
    )
    assert titles(page) == [
        "Scores",
        "Heads, and the agent's values",
        "Search and time",
        "Configuration",
        "Provenance",
    ]
    assert names(page) == ["heads", "search", "time"]
    (maps,) = page.sections[1].blocks
    assert [found.title for found in maps.maps] == [
        "3 of 12 heads removed",
        "State before any removal",
        "The agent's values, points of reward",
    ]
    first = maps.maps[0]
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


def test_a_choice_below_the_unpruned_layer(tmp_path):
    folder = write_searched(tmp_path)
    change_stages(folder, {2: {"rollout_score": 0.69}})
    (verdict,) = make_page([folder]).verdicts
    words = "The choice scored below the unpruned layer on the reward set in layer 2."
    assert words in verdict.points


@pytest.mark.parametrize("is_first_edition", [False, True])
def test_a_choice_below_the_plan_that_its_search_started_from(tmp_path, is_first_edition):
    folder = write_searched(tmp_path)
    change = {"given": [0, 3], "given_score": 0.715, "unpruned_score": 0.5}
    if is_first_edition:
        change |= {"given_score": None, "unpruned_score": 0.715}
    change_stages(folder, {2: change})
    page = make_page([folder])
    words = "The choice scored below the plan the search started from on the reward set in layer 2."
    assert words in page.verdicts[0].points
    columns, rows, notes = layers_table(page)
    assert (columns[3], rows[2][3]) == ("start", "71.50")
    assert "Start: of the plan the search started from. " in notes[0]


@pytest.mark.parametrize(
    ("updates", "words"),
    [
        ([None, None, None], []),  # of an earlier version
        ([3, 0, 9], ["The agent made no update in layer 1: its plan there is not learned."]),
        ([0, 3, 0], ["The agent made no update in layers 0, 2: its plan there is not learned."]),
    ],
)
def test_an_agent_that_learned_nothing(tmp_path, updates, words):
    folder = write_searched(tmp_path)
    change_stages(folder, {layer: {"updates": updates[layer]} for layer in range(LAYERS)})
    assert layers_table(make_page([folder]))[2][1:] == words


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
    assert names(page) == ["heads-1", "heads-2", "search-1", "time"]
    ranking = page.sections[1].blocks[1].maps[1]
    assert ranking.title == "Importance (how much the loss depends on the head)"


def test_runs_of_other_rows_are_not_compared(tmp_path):
    page = make_page([write_searched(tmp_path), write_ranked(tmp_path, data="other rows")])
    assert page.verdicts[0].headline.startswith("These runs have different rows or metrics")
    assert "dev, +0 heads" not in " ".join(page.verdicts[0].points)


def test_differing_settings_come_first(tmp_path):
    config = {"seed": 0, "agent.episodes": 9, "own": "x"}
    page = make_page([write_searched(tmp_path), write_ranked(tmp_path, config=config)])
    (differing, every) = next(s.blocks for s in page.sections if s.anchor == "settings")
    assert [[*row.values()][:3] for row in differing.rows] == [
        ["agent.episodes", "150", "9"],
        ["last.epochs", "6", "not recorded"],
        ["random.draw", "0", "not recorded"],
        ["own", "not recorded", "x"],
    ]
    assert differing.rows[0]["meaning"]
    assert (differing.folded, every.folded, len(every.rows)) == (False, True, 5)


def test_settings_of_many_runs(tmp_path):
    changes = [{"agent.episodes": 9}, {"agent.episodes": 7.5}, {"own": True}]
    folders = [
        write_searched(tmp_path / str(place), config={"seed": 0, **change})
        for place, change in enumerate(changes)
    ]
    rows = settings_rows({"value": [run.record for run in read_runs(folders)]})
    found = {row["setting"]: row["value"] for row in rows}
    assert found == {"seed": "0", "agent.episodes": "9, 7.5", "own": "true"}
    assert rows[-1]["setting"] == "own", "unknown settings come last"


def test_where_the_time_went(tmp_path):
    assert list(TIMES)[:-1] == list(TIME_PARTS)
    (run,) = read_runs([write_searched(tmp_path)])
    parts = time_parts(run.record)
    assert (parts["rewards"], parts["evaluation"], parts["other"]) == (4.0, 0.0, 0.5)


def test_only_an_accuracy_has_a_standard_error(tmp_path):
    (run,) = read_runs([write_searched(tmp_path, metric="matthews")])
    assert standard_error(run.record) is None
    assert make_page([tmp_path / "auber"]).sections[0].blocks[0].rows[0]["standard error"] == ""


def test_results_of_other_commands(tmp_path):
    run = write_searched(tmp_path)
    regret = ResultsFile("regret.json", "auber regret", make_regret())
    page = make_page([run], [regret, ResultsFile("speed.json", "speed", make_speed().to_json())])
    assert titles(page)[3:5] == ["Regret", "Speed"]
    assert "regret" in names(page)


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
    page = make_run_page(read_runs([folder]))
    (verdict,) = page.verdicts
    assert "3 of 12 heads and 101 of 400 neurons removed, 50.4 % of the multiply-adds remain" in (
        verdict.headline
    )
    blocks = [block for section in page.sections for block in section.blocks]
    (widths,) = [block for block in blocks if "neurons left in each layer" in block.caption]
    (drawing,) = widths.drawings
    labels = {text.get_text() for axes in drawing.figure.axes for text in axes.texts}
    assert {"1", "98"} <= labels
