"""Every rule of the answer, on scores made for it."""

from __future__ import annotations

import pytest

from auber.report.analysis import analyse
from auber.report.answer import answer_question
from auber.report.collect import collect
from tests.report.results import make_result, write_plan, write_run, write_study

CONTROL = "original+tuning"


def answer(folder):
    return answer_question(analyse(collect(folder)))


def headline(folder):
    (line,) = [line for line in answer(folder).splitlines() if line.startswith("**")]
    return line.strip("*")


def write(folder, dev, train=(95.0, 95.0, 95.0), control=(60.0, 60.0, 60.0)):
    """Three seeds of the method beside the control, which has 95 on train."""
    for method, scores, trains in (
        ("auber", dev, train),
        (CONTROL, control, (95.0,) * len(control)),
    ):
        for seed, (score, of_train) in enumerate(zip(scores, trains, strict=True)):
            result = make_result(
                "rte", method, seed, score / 100, **{"train.score": of_train / 100}
            )
            write_run(folder, f"{method}-{seed}", result)


@pytest.mark.parametrize(
    ("dev", "train", "words"),
    [
        (
            (62.0, 62.5, 63.0),
            (95.0, 95.0, 95.0),
            "Yes. Removing the heads auber chose gave a better dev score",
        ),
        (
            (58.0, 57.5, 57.0),
            (95.0, 95.0, 95.0),
            "No. Removing the heads auber chose gave a worse dev score",
        ),
        (
            (58.0, 62.0, 60.0),
            (95.0, 95.0, 95.0),
            "Not for its own sake. Neither a better dev score nor a smaller distance",
        ),
        (
            (59.9, 60.1, 60.1),
            (91.0, 92.0, 91.5),
            "Not for a better score, which is not shown. A smaller distance",
        ),
        (
            (59.9, 60.1, 60.1),
            (98.0, 98.5, 98.2),
            "No. No better score is shown, and the distance between train and dev is",
        ),
    ],
)
def test_the_answer_follows_from_what_is_shown(tmp_path, dev, train, words):
    write(tmp_path, dev, train)
    assert headline(tmp_path).startswith(words)


def test_the_answer_speaks_of_tasks_that_are_learned(tmp_path):
    """On WNLI, where the control is below the share of the most frequent class, the method gains as much as it loses on RTE."""
    write(tmp_path, (58.0, 57.5, 57.0))
    for method, scores in (("auber", (0.44, 0.42, 0.43)), (CONTROL, (0.41, 0.39, 0.40))):
        for seed, score in enumerate(scores):
            write_run(tmp_path, f"wnli-{method}-{seed}", make_result("wnli", method, seed, score))
    assert headline(tmp_path) == (
        "No. Removing the heads auber chose gave a worse dev score than the same tuning without removing any, on the tasks that "
        "original+tuning has learned."
    )


def test_too_little_is_no_answer(tmp_path):
    write_run(tmp_path, "a", make_result("rte", "auber", 0, 0.6))
    assert headline(tmp_path).startswith(
        "No answer yet. No run of auber has a run of original+tuning"
    )
    write_run(tmp_path, "c", make_result("rte", CONTROL, 0, 0.6))
    assert (
        headline(tmp_path)
        == "No answer yet. Pairs so far: 1; 3 are the fewest that can show a difference."
    )


def test_what_is_incomplete_says_so_first(tmp_path):
    write(tmp_path, (62.0, 62.5, 63.0))
    write_plan(tmp_path, ["rte", "mrpc"], ["auber", CONTROL], [0, 1, 2])
    assert headline(tmp_path).startswith("So far, and not the last word: yes. ")
    text = answer(tmp_path)
    assert "### mpnet-base, protocol seen (incomplete: 3 of 6 blocks so far)\n" in text
    assert (
        "- Missing: mrpc, seed 0: everything; mrpc, seed 1: everything; mrpc, seed 2: everything.\n"
        in text
    )


def test_a_smaller_gap_without_a_better_score_is_explained(tmp_path):
    write(tmp_path, (59.9, 60.1, 60.1), (91.0, 92.0, 91.5))
    text = answer(tmp_path)
    assert (
        "Overfitting, train minus dev: +31.5 points, +35.0 for original+tuning; smaller by 3.5 points"
        in text
    )
    assert "Train moved by -3.5 points, dev by +0.0. No gain on dev goes with it" in text
    assert "So many pairs find a difference of about" in text


def test_a_smaller_gap_with_a_better_score_needs_no_warning(tmp_path):
    write(tmp_path, (62.0, 62.5, 63.0))
    text = answer(tmp_path)
    assert "smaller by 2.5 points" in text
    assert "No gain on dev goes with it" not in text
    assert "So many pairs find" not in text


def test_a_first_tuning_of_its_own_is_in_no_price(tmp_path):
    for seed in range(3):
        for method, seconds in (
            ("auber", {"first": 0.0, "total": 30.0}),
            (CONTROL, {"first": 15.0, "total": 25.0}),
        ):
            result = make_result("rte", method, seed, 0.6, **{"cost.seconds": seconds})
            write_run(tmp_path, f"{method}-{seed}", result)
    assert (
        "What it costs: a run of auber took 30 s, one of original+tuning 10 s, mean over the tasks; the first tuning is "
        "counted in none of them." in answer(tmp_path)
    )


def test_every_other_method_is_sorted_by_what_is_shown(tmp_path):
    scores = {
        "auber": [63.0, 63.4, 63.2],
        CONTROL: [60.0, 61.0, 62.0],
        "random": [50.0, 50.5, 50.3],
        "greedy": [70.0, 70.5, 70.2],
        "michel": [60.0, 65.0, 63.0],
        "voita": [60.0],
        "auber-l2": [40.0, 40.4, 40.3],
    }
    write_study(tmp_path, {"rte": scores})
    text = answer(tmp_path)
    assert "- auber is shown to be ahead of: random, auber-l2.\n" in text
    assert "- auber is shown to be behind: greedy.\n" in text
    assert "- No difference is shown between auber and: michel.\n" in text
    assert "- Not enough runs yet to compare auber with: voita.\n" in text
    assert "- What it costs: a run of auber took 12 s, one of original+tuning 12 s" in text
    assert "- Heads removed, mean over the seeds: rte 20. The model is smaller" in text


def test_a_model_of_one_answer_is_named(tmp_path):
    write_run(tmp_path, "a", make_result("wnli", "auber", 0, 0.5634, **{"dev.one_class": True}))
    write_run(tmp_path, "b", make_result("wnli", CONTROL, 0, 0.5))
    write_run(tmp_path, "c", make_result("wnli", CONTROL, 1, 0.5))
    text = answer(tmp_path)
    assert "has learned nothing: wnli, auber (one class predicted in 1 of 1 run)." in text
    assert "no run of seed" not in text


def test_names_are_no_markup(tmp_path):
    write_run(tmp_path, "a", make_result("rte", "auber", 0, 0.6, model="x_*y*_<b>"))
    assert "### x\\_\\*y\\*\\_\\<b\\>, protocol seen\n" in answer(tmp_path)


def test_a_task_that_the_control_has_not_learned_is_set_aside(tmp_path):
    scores = {
        "mrpc": {"auber": [79.0, 80.1, 80.9], CONTROL: [80.0, 81.0, 82.0]},
        "wnli": {"auber": [56.0, 50.0, 60.0], CONTROL: [30.0, 35.0, 25.0]},
    }
    write_study(tmp_path, scores)
    assert (
        "- Only on tasks where original+tuning has learned something, so that it beats always giving the most frequent answer "
        "(mrpc): behind by 1.0 points, 95 % interval 0.8 to 1.2, 3 (task, seed) pairs.\n"
        in answer(tmp_path)
    )


def test_the_other_methods_on_tasks_that_are_learned(tmp_path):
    """What WNLI hides: beside it random is level, without it far behind."""
    scores = {
        "mrpc": {
            "auber": [79.0, 82.0, 82.0],
            CONTROL: [80.0, 81.0, 82.0],
            "random": [69.0, 72.5, 72.2],
        },
        "wnli": {
            "auber": [30.0, 31.0, 33.0],
            CONTROL: [30.0, 35.0, 25.0],
            "random": [80.0, 81.0, 82.5],
        },
    }
    write_study(tmp_path, scores)
    text = answer(tmp_path)
    assert "- No difference is shown between auber and: random.\n" in text
    assert (
        "- On the tasks that original+tuning has learned, auber is shown to be ahead of: random.\n"
        in text
    )
