"""Every rule of the answer, on scores made for it."""

from __future__ import annotations

import pytest

from auber.report.analysis import analyse
from auber.report.answer import judge_section
from tests.report.results import collect, make_result, write_plan, write_run, write_study

CONTROL = "original+tuning"
EQUAL = (95.0, 95.0, 95.0)


def answer(folder):
    (section,) = analyse(collect(folder)).sections
    return judge_section(section)


def write(folder, dev, train=EQUAL):
    """Three seeds of the method beside the control, which has 60 on dev and 95 on train."""
    for method, scores, trains in (("auber", dev, train), (CONTROL, (60.0,) * 3, EQUAL)):
        for seed in range(3):
            score = {"train.score": trains[seed] / 100}
            result = make_result("rte", method, seed, scores[seed] / 100, **score)
            write_run(folder, f"{method}-{seed}", result)


@pytest.mark.parametrize(
    ("dev", "train", "words"),
    [
        ((62.0, 62.5, 63.0), EQUAL, "Yes: removing "),
        ((58.0, 57.5, 57.0), EQUAL, "No: removing "),
        ((58.0, 62.0, 60.0), EQUAL, "No: neither the dev score nor its gap"),
        ((59.9, 60.1, 60.1), (91.0, 92.0, 91.5), "No significantly better dev score, but"),
        ((59.9, 60.1, 60.1), (98.0, 98.5, 98.2), "No: no significantly better dev"),
    ],
)
def test_the_headline_follows_from_the_comparisons(tmp_path, dev, train, words):
    write(tmp_path, dev, train)
    assert answer(tmp_path).headline.startswith(words)


def test_the_headline_is_about_tasks_that_are_learned(tmp_path):
    """On WNLI the control is below the majority class, and the gains there undo the loss on RTE."""
    write(tmp_path, (58.0, 57.5, 57.0))
    write_study(tmp_path, {"wnli": {"auber": [44.0, 42.0, 43.0], CONTROL: [41.0, 39.0, 40.0]}})
    headline = answer(tmp_path).headline
    assert headline.startswith("No: removing ")
    assert headline.endswith(", on the tasks that original+tuning has learned.")


def test_too_few_pairs_give_no_answer(tmp_path):
    write_run(tmp_path, "a", make_result("rte", "auber", 0, 0.6))
    assert answer(tmp_path).headline.startswith("No answer yet: no pair of runs of auber and orig")
    write_run(tmp_path, "c", make_result("rte", CONTROL, 0, 0.6))
    assert answer(tmp_path).headline.startswith("No answer yet: 1 pair of runs of auber and orig")


def test_an_incomplete_study_is_preliminary(tmp_path):
    write(tmp_path, (62.0, 62.5, 63.0))
    write_plan(tmp_path, ["rte", "mrpc"], ["auber", CONTROL], [0, 1, 2])
    found = answer(tmp_path)
    assert found.headline.startswith("Preliminary: yes: removing ")
    assert found.label == "incomplete: 3 of 6 blocks so far"
    missing = "; ".join(f"mrpc, seed {seed}: everything" for seed in range(3))
    assert f"Missing: {missing}." in found.points
    assert "preset paper" in found.points[-1]


@pytest.mark.parametrize(
    ("train", "words"),
    [
        (
            (91.0, 92.0, 91.5),
            "train minus dev: +31.5 points, +35.0 for original+tuning; smaller by 3.5 points",
        ),
        ((91.0, 92.0, 91.5), "Train changes by -3.5 points, dev by +0.0. Dev does not gain"),
        ((98.0, 98.5, 98.2), "+38.2 points, +35.0 for original+tuning; larger by 3.2 points"),
    ],
)
def test_the_gap_is_explained(tmp_path, train, words):
    write(tmp_path, (59.9, 60.1, 60.1), train)
    text = " ".join(answer(tmp_path).points)
    assert words in text
    assert " 3 pairs detect a difference of " in text


def test_the_first_tuning_is_no_cost_of_a_method(tmp_path):
    costs = {"auber": {"first": 0.0, "total": 30.0}, CONTROL: {"first": 15.0, "total": 25.0}}
    for method, seconds in costs.items():
        result = make_result("rte", method, 0, 0.6, **{"cost.seconds": seconds})
        write_run(tmp_path, method, result)
    words = "Cost: 30 s for a run of auber, 10 s for one of original+tuning"
    assert answer(tmp_path).points[-1].startswith(words)


def test_a_constant_answer_is_named(tmp_path):
    write_run(tmp_path, "a", make_result("wnli", "auber", 0, 0.5634, **{"dev.one_class": True}))
    write_run(tmp_path, "b", make_result("wnli", CONTROL, 0, 0.5))
    text = " ".join(answer(tmp_path).points)
    assert "has learned nothing: wnli, auber (one class predicted in 1 of 1 run)." in text


@pytest.mark.parametrize("changes", [{}, {"metric": "f1", "dev.one_class": True}])
def test_a_task_that_the_control_has_not_learned_is_set_aside(tmp_path, changes):
    """Without WNLI auber is behind the control and far ahead of random."""
    mrpc = {"auber": [79.0, 80.1, 80.9], CONTROL: [80.0, 81.0, 82.0], "random": [69.0, 70.5, 70.2]}
    wnli = {"auber": [56.0, 50.0, 60.0], CONTROL: [30.0, 35.0, 25.0], "random": [80.0, 81.0, 82.5]}
    write_study(tmp_path, {"mrpc": mrpc})
    write_study(tmp_path, {"wnli": wnli}, **changes)
    assert (
        "Only on tasks where original+tuning beats a constant answer (mrpc): behind by 1.0 points, "
        "95 % interval 0.8 to 1.2, 3 (task, seed) pairs."
    ) in answer(tmp_path).points
