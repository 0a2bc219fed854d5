"""The sentences that end `auber prune` and open a report."""

from __future__ import annotations

from typing import Any

import pytest

from auber.run.summary import describe_change, describe_choice

BEFORE = {
    "score": 0.96,
    "rows": 300,
    "multiply_adds": 1.0,
    "parameters": 22_700_000,
    "milliseconds": 17.04,
    "tokens": 10,
}
AFTER = {
    **BEFORE,
    "score": 0.947,
    "multiply_adds": 0.247,
    "parameters": 14_600_000,
    "milliseconds": 7.26,
}


def make(after: dict[str, Any], before: dict[str, Any] = BEFORE, **changes: Any) -> dict[str, Any]:
    device = {"provenance": {"device": "cpu"}}
    return {"metric": "accuracy", "before": before, "after": after, **device, **changes}


def test_what_a_smaller_model_costs_and_scores():
    assert describe_change(make(AFTER)) == (
        "With 25 % of the multiply-adds and 14.6 M parameters (unpruned: 22.7 M), dev accuracy is "
        "94.7 (unpruned: 96.0) on 300 rows, and a row of 10 tokens takes 7.3 ms (unpruned: 17 ms) "
        "on this CPU"
    )


def test_without_labels_the_unpruned_model_has_no_score():
    line = describe_change(make(AFTER, answered=True, provenance={"device": "NVIDIA H200"}))
    assert ", dev agreement with the unpruned model is 94.7 on 300 rows, and a row " in line
    assert line.endswith("takes 7.3 ms (unpruned: 17 ms) on NVIDIA H200")


def test_a_control_removes_nothing_and_claims_no_speed():
    after = {**BEFORE, "score": 0.95, "milliseconds": 12.0}
    line = "Nothing is removed; dev accuracy is 95.0 (before: 96.0) on 300 rows"
    assert describe_change(make(after)) == line


def test_a_model_that_was_pruned_before():
    before = {**BEFORE, "multiply_adds": 0.5, "parameters": 120_000, "milliseconds": 0.5}
    line = describe_change(make({**AFTER, "parameters": 90_000, "milliseconds": 0.254}, before))
    assert line.startswith("With 25 % (before: 50 %) of the multiply-adds and 90,000 parameters (b")
    assert line.endswith("takes 0.25 ms (before: 0.50 ms) on this CPU")


def test_without_measurements_there_is_no_sentence():
    assert describe_change({"metric": "accuracy"}) is None


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ("1", "the unpruned model, because no size was shown to lose at most 1 point (95 %)"),
        ("0.5", "0.5, because the next size was not shown to lose at most 1 point (95 %)"),
        ("0.25", "0.25, the smallest size tried, which loses at most 1 point (95 %)"),
    ],
)
def test_why_a_size_was_chosen(chosen, words):
    sizes = [{"keep": keep} for keep in (1.0, 0.5, 0.25)]
    result = {"config": {"size.tolerance": 1.0}, "sizes": sizes}
    assert describe_choice(result, chosen) == f"chosen: {words}"
    assert describe_choice({**result, "config": {}}, chosen) is None
