from __future__ import annotations

from typing import Any

import pytest

from auber.cli.screen import describe_result


def result(metric: str, score: float, *, one_class: bool = False, majority: float | None = None) -> dict[str, Any]:
    return {
        "metric": metric,
        "dev": {"score": score, "one_class": one_class, "majority": majority},
        "train": {"score": 0.75},
        "gap": 0.75 - score,
        "protocol": "seen",
        "seed": 3,
        "heads": {"removed": 2, "total": 12},
        "cost": {"rewards_computed": 5, "rewards_asked": 9, "tuning_steps": 40, "seconds": {"total": 12.3}},
    }


def test_scores_heads_and_cost():
    assert describe_result(result("entity_f1", 0.5)) == [
        "dev entity_f1 50.00, train 75.00, gap +25.00 points (protocol seen, seed 3)",
        "2 of 12 heads removed; 5 rewards computed for 9 asked; 40 tuning steps; 12 s",
    ]


# of these, only accuracy is then the share of a class
@pytest.mark.parametrize("metric", ["accuracy", "entity_f1", "f1", "matthews", "token_accuracy"])
def test_one_answer_to_everything_is_told_in_words_that_hold_for_every_metric(metric):
    assert describe_result(result(metric, 0.0, one_class=True))[2:] == [
        "careful: the model gives everything in dev the same answer, so its score says nothing of the rows"
    ]


@pytest.mark.parametrize(
    ("metric", "score", "told"), [("accuracy", 0.6, True), ("accuracy", 0.7, False), ("f1", 0.6, False)]
)
def test_a_score_that_the_most_frequent_class_has_too(metric, score, told):
    lines = describe_result(result(metric, score, majority=0.6))[2:]
    assert lines == (["careful: always answering the most frequent class would score 60.00"] if told else [])
