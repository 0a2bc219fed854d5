"""The ranking methods on tasks that are answered token by token."""

from __future__ import annotations

import pytest
import torch

from auber.models.surgery import gated_heads
from auber.search.rankings.michel import head_importance
from auber.search.registry import METHODS
from tests.kinds import TOKEN_KINDS, num_labels, random_kind_rows
from tests.search.made import ranking_inputs
from tests.small import small_config
from tests.tiny_models import tiny_model


def work_of(kind, num_removed=0, **changes):
    model = tiny_model(kind=kind, num_labels=num_labels(kind))
    return ranking_inputs(model, num_removed, random_kind_rows(kind), small_config(**changes))


@pytest.mark.parametrize("method", ["random", "confidence", "michel", "voita"])
@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_every_ranking_method_names_as_many_heads_as_asked(kind, method):
    work = work_of(kind, 5, voita__epochs=1, voita__trials=2)
    choice = METHODS[method].choose_plan(work)
    assert choice.plan.num_removed == 5
    choice.plan.check(3, 4)


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_importance_is_the_mean_absolute_derivative_of_each_rows_own_loss(kind):
    """By the model's own loss of one row at a time, without a padded batch."""
    work = work_of(kind)
    model, rows = work.model, work.rows
    sums = {layer: torch.zeros(4) for layer in range(3)}
    for row in range(len(rows)):
        features = {name: torch.tensor([value]) for name, value in rows[row].items()}
        if (
            max(
                int(features[name].max())
                for name in features
                if name in ("labels", "start_positions")
            )
            < 0
        ):
            continue  # nothing to answer, nothing to lose
        gates = {layer: torch.ones(4, requires_grad=True) for layer in sums}
        with gated_heads(model, gates):
            derivatives = torch.autograd.grad(model(**features).loss, list(gates.values()))
        for layer, derivative in zip(gates, derivatives, strict=True):
            sums[layer] += derivative.abs()
    found = head_importance(work)
    for layer, expected in sums.items():
        assert list(found[layer].values()) == pytest.approx(
            (expected / expected.norm()).tolist(), rel=1e-3, abs=1e-4
        )
