"""What stands on the page of runs and on that of a study."""

from __future__ import annotations

import json

import pytest

from auber.errors import RunError
from auber.report.html import bars, make_page
from auber.report.html.details import settings_grids
from auber.report.html.model import read_runs
from auber.report.html.page import Grid, Words
from auber.report.html.run_page import standard_error, time_parts
from auber.report.results_file import read_results_file, save_results
from auber.run.records import TIME_PARTS
from tests.report.html.made import write_ranked, write_searched
from tests.report.made import make_regret, make_speed
from tests.report.results import make_result, write_plan, write_run, write_study


def titles(page):
    return [part.title for part in page.sections]


def names(page):
    return [figure.name for figure in page.figures]


def test_one_run(tmp_path):
    page = make_page([write_searched(tmp_path)])
    assert (page.title, page.subtitle) == ("auber on rte", "mpnet-base, protocol seen, seed 0")
    (verdict,) = page.verdicts
    assert verdict.headline == "Dev accuracy 61.73, 3 of 12 heads removed."
    assert verdict.points[0] == (
        "Train 95.00, 33.27 points above dev; overfitting less would make this distance smaller."
    )
    assert verdict.points[1] == (
        "One run proves nothing. A score on 277 rows has a standard error of about 2.9 points. To know more: auber study with "
        "several seeds and the control original+tuning, then auber report of its folder."
    )
    assert verdict.points[2] == (
        "In 3 of 3 layers the search had seen a better mask than the one chosen, by up to 2.00 points of reward."
    )
    assert titles(page) == [
        "Scores", "Heads, and the agent's values", "Search, what was removed when, and time", "Configuration", "Provenance",
    ]  # fmt: skip
    assert names(page) == [
        "heads-auber",
        "state-auber",
        "values-auber",
        "search-auber",
        "when-auber",
        "time",
    ]
    (layers,) = [block for block in page.sections[2].blocks if isinstance(block, Grid)]
    assert layers.rows[0] == (
        "0",
        "1, 3",
        "2",
        "70.00",
        "71.00",
        "72.00",
        "1.00",
        "60",
        "12",
        "9",
        "3.5",
    )
    assert layers.rows[1][1:3] == ("none", "4")


def test_rows_of_ones_own_are_named_to_a_study(tmp_path):
    folder = write_searched(tmp_path)
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps({**result, "task": "films"}))
    (verdict,) = make_page([folder]).verdicts
    assert (
        "To know more: auber study with several seeds, the files of your rows and the control"
        in verdict.points[1]
    )


def test_a_head_tells_all_that_is_known_of_it(tmp_path):
    svg = next(make_page([write_searched(tmp_path)]).figures).svg
    assert "<title>layer 0, head 1: removed; state 0." in svg
    assert "points; not in the best mask seen</title>" in svg
    assert "; in the best mask seen</title>" in svg


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dev.one_class": True}, "Careful: the model gives everything in dev the same answer"),
        (
            {"dev.score": 0.5271},
            "Careful: the score is exactly that of always answering the most frequent class.",
        ),
        (
            {"dev.score": 0.5},
            "Careful: always answering the most frequent class would score 52.71.",
        ),
    ],
)
def test_a_score_that_means_nothing_says_so(tmp_path, change, words):
    (verdict,) = make_page([write_searched(tmp_path, **change)]).verdicts
    assert any(point.startswith(words) for point in verdict.points)


def test_a_choice_below_the_unpruned_layer_is_told(tmp_path):
    folder = write_searched(tmp_path)
    path = folder / "stages" / "layer-02.json"
    stage = json.loads(path.read_text())
    stage["search"]["rollout_score"] = 0.69
    path.write_text(json.dumps(stage))
    (verdict,) = make_page([folder]).verdicts
    assert (
        "What was chosen scored below the unpruned layer on the reward set in layer 2."
        in verdict.points
    )


@pytest.mark.parametrize("is_earlier", [False, True], ids=["now", "an earlier version"])
def test_a_choice_below_what_its_search_began_from_is_told_in_these_words(tmp_path, is_earlier):
    folder = write_searched(tmp_path)
    path = folder / "stages" / "layer-02.json"
    stage = json.loads(path.read_text())
    stage["search"] |= {"given": [0, 3], "given_score": 0.715, "unpruned_score": 0.5}
    if is_earlier:
        stage["search"]["unpruned_score"] = stage["search"].pop("given_score")
    path.write_text(json.dumps(stage))
    page = make_page([folder])
    point = "What was chosen scored below what the search began from on the reward set in layer 2."
    assert point in page.verdicts[0].points
    course = page.sections[2].blocks
    (layers,) = [block for block in course if isinstance(block, Grid)]
    assert [heading.title for heading in layers.columns][3] == "begun from"
    assert layers.rows[2][3] == "71.50"
    assert layers.notes[0].startswith("Begun from, chosen, best seen: ")
    assert "as points over what the search began from" in course[0].caption


@pytest.mark.parametrize(
    ("costs", "given", "words"),
    [
        ([0, 0, 0], {}, ()),
        ([0.05, 0.05, 0.05], {}, ("A removed head had to gain 0.05 points.",)),
        (
            [0.12345, 0.2, 0],
            {0: [1, 2], 1: [0]},
            (
                "The searches began without 3 of the heads and changed 4.",
                "A changed head had to gain 0.123 to 0.2 points.",
            ),
        ),
    ],
)
def test_what_a_search_began_from_and_had_to_gain_is_told(tmp_path, costs, given, words):
    folder = write_searched(tmp_path)  # 1 and 3 go of layer 0, none of layer 1, 0 of layer 2
    for layer, cost in enumerate(costs):
        path = folder / "stages" / f"layer-{layer:02}.json"
        stage = json.loads(path.read_text())
        stage["search"] |= {"change_cost": float(cost), "given": given.get(layer, [])}
        path.write_text(json.dumps(stage))
    (layers,) = [
        block for block in make_page([folder]).sections[2].blocks if isinstance(block, Grid)
    ]
    assert layers.notes[1:] == words
    best = "worth most" if any(costs) else "best seen"
    assert [heading.title for heading in layers.columns][5] == best
    assert f"Missed: {best} minus chosen." in layers.notes[0]
    assert (
        "the best reward need not be worth most"
        in make_page([folder]).sections[2].blocks[0].caption
    ) == any(costs)


@pytest.mark.parametrize(
    ("updates", "words"),
    [
        ([None, None, None], ()),  # of an earlier version
        ([3, 0, 9], ("The agent made no update in layer 1: its plan there is not learned.",)),
        ([0, 3, 0], ("The agent made no update in layers 0, 2: its plan there is not learned.",)),
    ],
)
def test_where_the_agent_learned_nothing_is_told(tmp_path, updates, words):
    folder = write_searched(tmp_path)
    for layer, number in enumerate(updates):
        path = folder / "stages" / f"layer-{layer:02}.json"
        stage = json.loads(path.read_text())
        stage["search"] |= {} if number is None else {"updates": number}
        path.write_text(json.dumps(stage))
    (layers,) = [
        block for block in make_page([folder]).sections[2].blocks if isinstance(block, Grid)
    ]
    assert layers.notes[1:] == words


def test_a_run_without_stages_still_has_a_page(tmp_path):
    page = make_page([write_run(tmp_path, "bare", make_result("rte", "random", 0, 0.6))])
    assert names(page) == ["heads-bare", "time"]


def test_a_start_has_a_page_without_a_plan(tmp_path):
    page = make_page(
        [write_run(tmp_path, "start", make_result("rte", "original", 0, 0.6, kind="finetune"))]
    )
    assert page.title == "Fine-tuned start on rte"
    assert names(page) == ["time"]


def test_runs_side_by_side(tmp_path):
    page = make_page([write_searched(tmp_path), write_ranked(tmp_path)])
    assert page.title == "2 runs side by side"
    first = page.verdicts[0]
    assert first.headline == "One run each shows no difference between methods or settings."
    assert first.points[0] == "michel +2.27 points on dev, +0 heads removed, against auber."
    assert not any(
        "One run proves nothing" in point for verdict in page.verdicts for point in verdict.points
    )
    assert names(page)[:3] == ["scores", "heads-auber", "heads-michel"]
    assert "importance-michel" in names(page)


def test_runs_of_other_rows_are_not_compared(tmp_path):
    page = make_page([write_searched(tmp_path), write_ranked(tmp_path, data="other rows")])
    assert page.verdicts[0].headline.startswith("These runs are of different rows or metrics")
    assert "scores" not in names(page)


def test_other_starts_are_told(tmp_path):
    page = make_page([write_searched(tmp_path), write_ranked(tmp_path, start="other weights")])
    assert (
        page.verdicts[0]
        .points[-1]
        .endswith(" They did not begin with the same fine-tuned weights.")
    )


def test_differing_settings_come_first(tmp_path):
    runs = read_runs(
        [
            write_searched(tmp_path),
            write_ranked(tmp_path, config={"seed": 0, "agent.episodes": 9, "own": "x"}),
        ]
    )
    differing, every = settings_grids({run.label: run.record for run in runs})
    assert [row[:3] for row in differing.rows] == [
        ("agent.episodes", "150", "9"), ("last.epochs", "6", "not recorded"),
        ("random.draw", "0", "not recorded"), ("own", "not recorded", "x"),
    ]  # fmt: skip
    assert differing.rows[0][3], "what it means"
    assert (differing.folded, every.folded, len(every.rows)) == (False, True, 5)


def test_every_part_of_the_time_has_a_name_and_a_colour(tmp_path):
    seconds = {name: 1.0 + place for place, name in enumerate(TIME_PARTS)}
    (run,) = read_runs(
        [write_searched(tmp_path, **{"cost.seconds": {**seconds, "total": sum(seconds.values())}})]
    )
    parts = time_parts(run.record)
    assert parts == {**seconds, "other": 0.0}
    drawn = bars.draw_times([("auber", parts)], label="times")
    assert all(
        f"auber, {part.words}: {seconds[name]:.1f} s" in drawn for name, part in TIME_PARTS.items()
    )
    assert bars._PART_COLOURS.keys() == bars.PARTS.keys()
    assert len(set(bars._PART_COLOURS.values())) == len(bars.PARTS)


def test_time_that_is_not_named_is_other(tmp_path):
    (run,) = read_runs([write_searched(tmp_path)])
    parts = time_parts(run.record)
    assert (parts["rewards"], parts["evaluation"], parts["other"]) == (4.0, 0.0, 0.5)


def test_only_an_accuracy_has_a_standard_error(tmp_path):
    (run,) = read_runs([write_searched(tmp_path, metric="matthews")])
    assert standard_error(run.record) is None


SCORES = {
    "rte": {
        "auber": [66.0, 65.0, 67.0],
        "random": [60.0, 61.0, 62.0],
        "original+tuning": [64.0, 63.5, 64.2],
    },
    "mrpc": {"auber": [86.0, 85.5], "original+tuning": [84.0, 83.9]},
}


def test_a_study(tmp_path):
    write_plan(tmp_path, ["mrpc", "rte"], ["auber", "random", "original+tuning"], [0, 1, 2])
    write_study(tmp_path, SCORES)
    (tmp_path / "x.failed.json").write_text(json.dumps({"error": "no room", "skipped": False}))
    page = make_page([tmp_path])
    (verdict,) = page.verdicts
    assert verdict.about == "mpnet-base, protocol seen"
    assert verdict.label == "incomplete: 3 of 6 blocks so far"
    assert verdict.headline.startswith("So far, and not the last word: yes. ")
    assert titles(page) == [
        "Dev scores", "Comparisons", "Heads", "Time", "Tasks", "How to read the tables", "Every run", "Configuration", "Provenance",
    ]  # fmt: skip
    assert names(page) == [
        "scores-mrpc", "scores-rte", "heads-mrpc-auber", "heads-rte-auber", "heads-rte-random", "time-mrpc", "time-rte",
    ]  # fmt: skip
    runs, left_out = page.sections[6].blocks
    assert len(runs.rows) == 13
    assert left_out.rows == (("x", "failed: no room"),)
    legend = next(block for block in page.sections[5].blocks if isinstance(block, Words))
    assert sum("Shown is a difference of" in sentence for sentence in legend.sentences) == 1


def test_a_study_shows_its_searches(tmp_path):
    write_searched(tmp_path)
    write_ranked(tmp_path)
    page = make_page([tmp_path])
    assert "search-rte-auber" in names(page)
    (figure,) = [figure for figure in page.figures if figure.name == "search-rte-auber"]
    assert "<title>seed 0, layer 2: best +2.00 points after 12 masks</title>" in figure.svg


def test_models_and_protocols_stand_apart(tmp_path):
    write_study(tmp_path, {"rte": {"auber": [60.0]}})
    write_study(tmp_path, {"rte": {"auber": [61.0]}}, model="minilm")
    page = make_page([tmp_path])
    assert [verdict.about for verdict in page.verdicts] == [
        "minilm, protocol seen",
        "mpnet-base, protocol seen",
    ]
    assert titles(page)[0] == "Dev scores: minilm, seen"
    assert "heads-rte-auber-minilm-seen" in names(page)


def test_notes_of_a_results_file_are_shown(tmp_path):
    write_study(tmp_path / "s", {"rte": {"auber": [60.0]}})
    save_results(tmp_path / "s", tmp_path / "s.json", notes=["Shared GPU."])
    assert make_page([tmp_path / "s.json"]).sections[-1].blocks[0] == Words(("Note: Shared GPU.",))


def test_results_of_other_commands_stand_beside(tmp_path):
    run = write_searched(tmp_path)
    (tmp_path / "regret.json").write_text(json.dumps(make_regret()))
    (tmp_path / "speed.json").write_text(json.dumps(make_speed().to_json()))
    extras = [read_results_file(tmp_path / name) for name in ("regret.json", "speed.json")]
    page = make_page([run], extras)
    assert titles(page)[3:5] == ["Regret", "Speed"]
    assert "regret" in names(page)
    (tmp_path / "other.json").write_text(json.dumps({"kind": "bench"}))
    with pytest.raises(
        RunError, match="^other.json: must be results of kind auber regret or speed, found 'bench'"
    ):
        make_page([run], [read_results_file(tmp_path / "other.json")])
