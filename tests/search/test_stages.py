"""The names of stages, written and read."""

from __future__ import annotations

import pytest

from auber.search.stages import (
    REWIND,
    fold_model_stage,
    is_layer_stage,
    layer_of,
    layer_stage,
    tuned_layer_of,
    tuning_series,
    tuning_stage,
)


@pytest.mark.parametrize(
    ("name", "layer", "tuned_layer"),
    [
        (layer_stage(7), 7, 7),
        (layer_stage(123), 123, 123),
        (tuning_stage(7), None, 7),
        *((name, None, None) for name in ("rewind", fold_model_stage(1), "layer-x", "layer--1")),
        ("layer-٣", None, None),
        ("layer-1234567", None, None),
    ],
)
def test_the_layer_in_a_name(name, layer, tuned_layer):
    assert (layer_of(name), tuned_layer_of(name)) == (layer, tuned_layer)
    assert is_layer_stage(name) == name.startswith("layer-")


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
def test_the_series_of_a_tuning_is_named_by_its_stage(stage, name):
    assert tuning_series(stage) == name
    assert tuning_series(stage, 1) == f"scout-1/{name}"
