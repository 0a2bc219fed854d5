from __future__ import annotations

import pytest

from auber.errors import RunError
from auber.run.fields import Fields
from auber.run.search_scores import read_scores

SEARCH = {
    "given_score": 0.5,
    "unpruned_score": 0.5,
    "best": [3, 1],
    "best_score": 0.75,
    "rollout": [2],
    "rollout_score": 0.625,
}


def read(**stage):
    return read_scores(Fields("layer-00.json", stage))


def test_what_a_record_tells():
    scores = read(removed=[1, 3], search=SEARCH)
    assert (scores.of([1, 3]), scores.gain([3, 1])) == (0.75, 0.25)
    assert (scores.of((2,)), scores.gain((2,))) == (0.625, 0.125)
    assert (scores.of([0]), scores.gain([0])) == (None, None), (
        "some other mask, of which it says nothing"
    )


def test_of_a_given_number_of_heads_each_size_has_its_score():
    scores = read(
        search=SEARCH,
        sizes=[{"removed": [], "score": 0.5}, {"removed": [0], "score": 0.375, "gain": -1.0}],
    )
    assert (scores.gain([0]), scores.gain([]), scores.gain([1, 3])) == (-0.125, 0.0, 0.25)


@pytest.mark.parametrize(
    ("search", "given", "unpruned"),
    [
        ({"given": [1], "given_score": 0.5, "unpruned_score": 0.625}, 0.5, 0.625),
        ({"given": [1], "given_score": 0.5}, 0.5, None),
        ({"unpruned_score": 0.5}, 0.5, 0.5),
        ({"given": [1], "unpruned_score": 0.5}, 0.5, None),
    ],
    ids=["both", "nobody asked", "an earlier version", "an earlier version, from a plan"],
)
def test_what_a_search_began_from_is_not_always_the_unpruned_layer(search, given, unpruned):
    scores = read(search={**search, "best": [2], "best_score": 0.75})
    assert (scores.given, scores.unpruned, scores.gain([2])) == (given, unpruned, 0.75 - given)


def test_a_search_that_tells_no_scores():
    scores = read(search={"seconds": 1.0})
    assert (scores.masks, scores.gain([])) == ({}, None)


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        (
            {"search": {**SEARCH, "best_score": "high"}},
            r"^layer-00.json: 'search.best_score' must be a finite number",
        ),
        ({"sizes": [{"removed": [0]}]}, r"^layer-00.json: sizes: lacks 'score'"),
    ],
)
def test_a_damaged_record_is_named(stage, message):
    with pytest.raises(RunError, match=message):
        read(**stage)
