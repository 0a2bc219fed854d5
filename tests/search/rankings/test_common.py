from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auber.errors import ModelError, PlanError
from auber.search.rankings.common import remove_lowest, scores_to_json

layers = st.dictionaries(
    st.integers(0, 5),
    st.dictionaries(st.integers(0, 7), st.integers(-3, 3).map(float), max_size=5),
    max_size=4,
)


@given(layers, st.data())
def test_the_lowest_go_and_one_stays(scores, data):
    most = sum(max(0, len(heads) - 1) for heads in scores.values())
    plan = remove_lowest(scores, data.draw(st.integers(0, most)))
    for layer, heads in scores.items():
        gone = [(heads[head], head) for head in plan.removed(layer)]
        kept = [(score, head) for head, score in heads.items() if head not in plan.removed(layer)]
        assert kept or not heads
        # within a layer everything that went was lower than everything that stayed
        assert all(one < other for one in gone for other in kept)
        for other, others in scores.items():
            left = len(others) - len(plan.removed(other))
            spared = [
                (score, other, head)
                for head, score in others.items()
                if head not in plan.removed(other)
            ]
            if left > 1:  # between layers, unless the layer could not spare one
                assert all((score, layer, head) < one for score, head in gone for one in spared)


@given(layers, st.data())
def test_as_many_go_as_asked(scores, data):
    most = sum(max(0, len(heads) - 1) for heads in scores.values())
    count = data.draw(st.integers(0, most))
    assert remove_lowest(scores, count).num_removed == count


def test_no_other_plan_of_that_size_has_a_lower_sum():
    scores = {0: {0: 0.5, 1: 0.1, 2: 0.2}, 2: {1: 0.3, 3: 0.05}}
    pairs = [(layer, head) for layer in scores for head in scores[layer]]
    for count in range(4):
        allowed = [
            some
            for some in combinations(pairs, count)
            if all(
                sum(layer == place for place, _ in some) < len(heads)
                for layer, heads in scores.items()
            )
        ]
        lowest = min(sum(scores[layer][head] for layer, head in some) for some in allowed)
        plan = remove_lowest(scores, count)
        assert sum(scores[layer][head] for layer in plan for head in plan[layer]) == pytest.approx(
            lowest
        )


def test_among_equals_the_first_goes():
    assert remove_lowest({1: {0: 1.0, 3: 1.0}, 0: {2: 1.0, 1: 1.0}}, 1) == {0: (1,)}


def test_too_many():
    message = r"^plan: the number of heads to remove must be from 0 to 1 \(one head stays in each layer\), found 2$"
    with pytest.raises(PlanError, match=message):
        remove_lowest({0: {0: 1.0, 1: 2.0}, 1: {}}, 2)


@pytest.mark.parametrize("score", [math.nan, math.inf])
def test_a_score_that_is_no_number(score):
    with pytest.raises(
        ModelError,
        match=rf"^layer 1, head 2: its score must be a finite number, found {score}; check",
    ):
        remove_lowest({0: {0: 1.0}, 1: {2: score, 3: 0.0}}, 0)


def test_scores_as_json():
    assert scores_to_json({0: {2: 0.5}}) == {"0": {"2": 0.5}}
