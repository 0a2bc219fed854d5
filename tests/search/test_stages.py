"""The names of stages, written and read."""

from __future__ import annotations

import pytest

from auber.search.stages import (
    REWIND,
    fold_model_stage,
    is_layer_stage,
    is_tuning_series,
    layer_of,
    layer_stage,
    tuned_layer_of,
    tuning_series,
    tuning_stage,
)


@pytest.mark.parametrize("layer", [0, 7, 11, 123])
def test_a_layer_is_read_out_of_its_stages(layer):
    assert layer_of(layer_stage(layer)) == tuned_layer_of(layer_stage(layer)) == layer
    assert tuned_layer_of(tuning_stage(layer)) == layer
    assert layer_of(tuning_stage(layer)) is None


@pytest.mark.parametrize(
    "name",
    [
        "first",
        "rewind",
        fold_model_stage(1),
        "layer-",
        "layer-x",
        "layer--1",
        "layer-٣",
        "layer-1234567",
    ],
)
def test_no_other_name_has_a_layer(name):
    assert layer_of(name) is tuned_layer_of(name) is None


def test_a_damaged_name_still_says_what_it_would_be():
    assert is_layer_stage("layer-x")
    assert not is_layer_stage(tuning_stage(1))


@pytest.mark.parametrize(
    ("stage", "name"),
    [
        ("first", "first/tuning"),
        (layer_stage(3), "layer-03/tuning"),
        (tuning_stage(3), "layer-03/tuning"),
        (REWIND, "rewind/tuning"),
        ("last", "last/tuning"),
    ],
)
def test_the_numbers_of_a_tuning_are_found_by_its_stage(stage, name):
    assert tuning_series(stage) == name
    assert is_tuning_series(name, stage)
    assert tuning_series(stage, 1) == f"scout-1/{name}"
    assert is_tuning_series(tuning_series(stage, 1), fold_model_stage(1))
    for other in ("layer-04", "scout-0", "scout-10", "plan"):
        assert not is_tuning_series(name, other)
        assert not is_tuning_series(tuning_series(stage, 1), other)
    assert not is_tuning_series(tuning_series(stage, 1), stage)
    assert not is_tuning_series("layer-03/search", "layer-03")
