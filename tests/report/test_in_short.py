"""The page's first lines follow from all results together."""

from __future__ import annotations

import json

import pytest

from auber.report.analysis import analyse
from auber.report.answer import answers
from auber.report.collect import pool
from auber.report.in_short import render_in_short
from auber.report.results_file import read_results_file, runs_of, save_results
from tests.report.made import make_speed
from tests.report.results import write_plan, write_study

CONTROL = "original+tuning"
LEVEL = (80.0, 81.0, 82.0)


def results(folder, name, scores, **changes):
    """A results file of a study of these scores."""
    write_study(folder / name, scores, **changes)
    save_results(folder / name, folder / f"{name}.json")
    return read_results_file(folder / f"{name}.json")


def mrpc(folder, name, dev, **changes):
    return results(
        folder, name, {"mrpc": {"auber": list(dev), CONTROL: list(LEVEL)}}, model=name, **changes
    )


def table(text):
    """What the table has, by the first cell of each line."""
    cells = [
        [cell.strip() for cell in line[1:-1].split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    return {first: rest for first, *rest in cells if first != "---"}


BETTER, WORSE, SAME = (83.0, 84.1, 84.9), (77.0, 78.1, 78.9), (79.0, 82.0, 82.0)


@pytest.mark.parametrize(
    ("scores", "headline"),
    [
        ([BETTER], "Yes: a better dev score of auber is shown wherever it was asked."),
        (
            [BETTER, SAME],
            "It depends: a better dev score of auber is shown in some settings and not in others.",
        ),
        (
            [SAME, WORSE],
            "No: a better dev score of auber is shown nowhere, a worse one in some settings. What you get is a smaller model.",
        ),
        (
            [SAME, SAME],
            "Not for a better dev score of auber, which is shown nowhere. What you get is a smaller model.",
        ),
    ],
)
def test_the_headline_follows_from_what_is_shown(tmp_path, scores, headline):
    text = render_in_short(
        [mrpc(tmp_path, f"model-{number}", dev) for number, dev in enumerate(scores)]
    )
    assert text.startswith(
        "## Should I prune heads to regularise my model, and what will I get?\n\n"
    )
    assert f"\n**{headline}**\n" in text


def test_settings_are_counted(tmp_path):
    text = render_in_short(
        [mrpc(tmp_path, f"model-{n}", dev) for n, dev in enumerate((BETTER, BETTER, SAME))]
    )
    assert "- Asked in 3 settings, each a model under a protocol, " in text
    assert (
        "a better dev score is shown in 2 (model-0, seen; model-1, seen), a worse one in none.\n"
        in text
    )
    assert "still missing" not in text


def test_missing_runs_are_said(tmp_path):
    write_plan(tmp_path / "half", ["mrpc"], ["auber", CONTROL], [0, 1, 2, 3])
    file = results(tmp_path, "half", {"mrpc": {"auber": list(SAME), CONTROL: list(LEVEL)}})
    assert "Runs are still missing in 1 of them, so this is not the last word." in render_in_short(
        [file]
    )


def test_whose_settings_the_runs_have_is_said_of_a_study(tmp_path):
    write_plan(tmp_path / "whole", ["mrpc"], ["auber", CONTROL], [0, 1, 2])
    file = results(tmp_path, "whole", {"mrpc": {"auber": list(SAME), CONTROL: list(LEVEL)}})
    preset = file.content["study"]["preset"]
    assert (
        f"each a model under a protocol with the settings of preset {preset} and what its study changes of them, beside the same model"
        in render_in_short([file])
    )
    (answer,) = answers(analyse(pool([runs_of(file)])))
    assert (
        answer.points[-1]
        == f"The settings are those of preset {preset}, with what the study changes of them."
    )


def test_a_task_that_nobody_learns_is_set_aside(tmp_path):
    """WNLI, where the control lies below the share of the most frequent class, lifts the mean; MRPC alone lowers it."""
    scores = {
        "mrpc": {"auber": [79.0, 80.1, 80.9], CONTROL: list(LEVEL)},
        "wnli": {"auber": [56.0, 50.0, 60.0], CONTROL: [30.0, 35.0, 25.0]},
    }
    text = render_in_short([results(tmp_path, "both", scores)])
    assert "a better dev score is shown in none, a worse one in 1 (mpnet-base, seen).\n" in text
    assert (
        "\nDev score of auber against the other methods, only on tasks where original+tuning beats always giving the most frequent answer: "
        in text
    )
    assert table(text) == {
        "": ["mpnet-base, seen"],
        "tasks": ["mrpc"],
        "(task, seed) pairs": ["3"],
        "heads removed": ["14 % of 144"],
        "against original+tuning": ["**-1.0 (-1.2 to -0.8)**"],
    }


def test_where_all_is_learned_nothing_is_set_aside(tmp_path):
    text = render_in_short([mrpc(tmp_path, "one", SAME)])
    assert "most frequent answer" not in text
    assert "\nDev score of auber against the other methods: mean difference" in text
    assert table(text)["against original+tuning"] == ["+0.0 (-2.5 to +2.5)"]


def test_the_other_methods_stand_beside_the_control_on_tasks_that_are_learned(tmp_path):
    """On WNLI, which counts for nothing, random is far ahead; an ablation is in a table of its own."""
    scores = {
        "mrpc": {
            "auber": [79.0, 82.0, 82.0],
            CONTROL: list(LEVEL),
            "random": [69.0, 72.5, 72.2],
            "greedy": [79.0, 82.0, 82.5],
            "mine": [79.0, 82.0],
            "auber-l2": [79.0, 82.0, 82.5],
        },
        "wnli": {
            "auber": [30.0, 31.0, 33.0],
            CONTROL: [30.0, 35.0, 25.0],
            "random": [80.0, 81.0, 82.5],
        },
    }
    found = table(render_in_short([results(tmp_path, "both", scores)]))
    assert list(found)[1:] == [
        "tasks",
        "(task, seed) pairs",
        "heads removed",
        *(f"against {name}" for name in (CONTROL, "random", "greedy", "mine")),
    ]
    assert found["(task, seed) pairs"] == ["3"]
    assert found["against random"] == ["**+9.8 (+9.1 to +10.4)**"]
    assert found["against greedy"] == ["-0.2 (-0.9 to +0.6)"]
    assert found["against mine"] == ["+0.0, 2 pairs"]


def test_a_method_that_was_run_on_other_tasks_says_on_which(tmp_path):
    scores = {task: {"auber": list(SAME), CONTROL: list(LEVEL)} for task in ("mrpc", "rte")}
    scores["rte"]["random"] = [70.0, 71.0, 73.0]
    found = table(render_in_short([results(tmp_path, "both", scores)]))
    assert found["tasks"] == ["mrpc, rte"]
    assert found["against random"][0].endswith(", 3 pairs of rte")


def test_that_no_task_is_learned_is_said(tmp_path):
    learned = mrpc(tmp_path, "a", SAME)
    not_learned = results(
        tmp_path,
        "b",
        {"wnli": {"auber": [30.0, 31.0, 33.0], CONTROL: [30.0, 35.0, 25.0]}},
        model="b",
    )
    assert table(render_in_short([learned, not_learned]))["tasks"] == [
        "mrpc",
        "wnli (none is learned)",
    ]


def test_what_a_reader_has_who_sets_nothing_comes_first(tmp_path):
    for name, preset in (("a", "paper"), ("b", "default")):
        write_plan(
            tmp_path / name,
            ["mrpc"],
            ["auber", CONTROL],
            [0, 1, 2],
            preset=preset,
            model=name,
            protocols=["seen"],
        )
    found = table(render_in_short([mrpc(tmp_path, name, SAME) for name in "ab"]))
    assert found[""] == ["b, seen", "a, seen"]
    assert found["preset"] == ["default", "paper"]


def test_a_control_with_more_rows_is_said_to_be_one(tmp_path):
    together = "price of pruning and of holding rows back, together."
    assert together not in render_in_short([mrpc(tmp_path, "one", SAME)])
    file = mrpc(tmp_path, "two", WORSE, protocol="heldout")
    assert render_in_short([file]).count(together) == 1
    (answer,) = answers(analyse(pool([runs_of(file)])))
    assert [point for point in answer.points if together in point] == [answer.points[1]]


def test_too_few_pairs_are_no_answer(tmp_path):
    file = results(tmp_path, "few", {"mrpc": {"auber": [80.0, 81.0], CONTROL: [80.0, 80.5]}})
    assert "**No answer yet**: no 3 pairs of auber and original+tuning" in render_in_short([file])


def test_what_the_smaller_model_buys(tmp_path):
    path = tmp_path / "speed.json"
    path.write_text(json.dumps(make_speed().to_json()))
    text = render_in_short([mrpc(tmp_path, "one", SAME), read_results_file(path)])
    assert (
        "- The plans that were measured take 8 % of the parameters away. How many times as fast the model is, at batches of "
        "1 and 32: torch on cpu, 2.00 in 1, slower (0.80) in 1 of 2.\n" in text
    )
