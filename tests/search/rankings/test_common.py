from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from auber.errors import ModelError, PlanError
from auber.models.plan import PruningPlan
from auber.models.surgery import remove
from auber.search.rankings.common import (
    padded_batches,
    present_heads,
    remove_lowest,
    row_losses,
)
from tests.kinds import TOKEN_KINDS, num_labels, random_kind_rows
from tests.search.made import ranking_inputs
from tests.tiny_models import tiny_model

layers = st.dictionaries(
    st.integers(0, 5),
    st.dictionaries(st.integers(0, 7), st.integers(-3, 3).map(float), max_size=5),
    max_size=4,
)


@given(layers, st.data())
def test_the_lowest_go_and_one_stays(scores, data):
    most = sum(max(0, len(heads) - 1) for heads in scores.values())
    count = data.draw(st.integers(0, most))
    plan = remove_lowest(scores, count)
    assert plan.num_heads == count
    for layer, heads in scores.items():
        gone = [(heads[head], layer, head) for head in plan.heads.get(layer, ())]
        for other, others in scores.items():
            left = [
                (score, other, head)
                for head, score in others.items()
                if head not in plan.heads.get(other, ())
            ]
            assert left or not others
            # Everything that goes is lower than everything that stays, except in another layer
            # that could not spare a head.
            if other == layer or len(left) > 1:
                assert all(one < another for one in gone for another in left)


def test_of_equal_scores_the_first_goes():
    assert remove_lowest({1: {0: 1.0, 3: 1.0}, 0: {2: 1.0, 1: 1.0}}, 1) == PruningPlan({0: [1]})


@pytest.mark.parametrize(
    ("score", "count", "error", "message"),
    [
        (0.0, 2, PlanError, "plan: the number of heads to remove must be from 0 to 1 .one head "
         "stays in each layer., found 2$"),
        (math.nan, 0, ModelError, "layer 1, head 2: its score must be a finite number, found nan"),
        (math.inf, 0, ModelError, "layer 1, head 2: its score must be a finite number, found inf"),
    ],
)  # fmt: skip
def test_scores_and_numbers_that_cannot_be(score, count, error, message):
    with pytest.raises(error, match=f"^{message}"):
        remove_lowest({0: {0: 1.0}, 1: {2: score, 3: 0.0}, 2: {}}, count)


# --- passes over the rows ------------------------------------------------------------------------


@pytest.mark.parametrize("num_labels", [1, 2, 3])
def test_the_mean_of_row_losses_is_the_models_own(num_labels):
    model = tiny_model(num_labels=num_labels)
    for inputs, targets in padded_batches(ranking_inputs(model), 30):
        with torch.inference_mode():
            expected = float(model(**inputs, **targets).loss)
            losses = row_losses(model, "sequence", inputs, targets)
        assert float(losses.mean()) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_the_loss_of_a_row_does_not_depend_on_its_batch(kind):
    """transformers' own loss of spans does: padding competes with the tokens."""
    model, rows = tiny_model(kind=kind, num_labels=num_labels(kind)), random_kind_rows(kind)
    inputs = ranking_inputs(model, rows=rows)
    alone, together = (
        torch.cat([row_losses(model, kind, *batch) for batch in padded_batches(inputs, tokens)])
        for tokens in (1, 10_000)
    )
    assert len(alone) == len(rows)
    for (batch, targets), loss in zip(padded_batches(inputs, 1), alone.tolist(), strict=True):
        if max(int(target.max()) for target in targets.values()) < 0:
            assert loss == 0  # without an answer; transformers gives NaN, or uses token 0
        else:
            assert loss == pytest.approx(model(**batch, **targets).loss.item(), abs=1e-5)
    torch.testing.assert_close(alone, together, atol=1e-5, rtol=1e-5)


def test_layers_without_heads_are_left_out():
    model = tiny_model()
    remove(model, {0: [2], 1: [0, 1, 2, 3]}, allow_empty_layers=True)
    assert present_heads(ranking_inputs(model).encoder) == {0: (0, 1, 3), 2: (0, 1, 2, 3)}
