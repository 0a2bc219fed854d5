"""Orders within groups, against a slow computation."""

from __future__ import annotations

import math

import pytest
import torch

from auber.metrics.orders import compare_orders, ndcg


def slow_ndcg(scores, others):
    by_other = sorted(range(len(others)), key=lambda row: -others[row])
    worth = {row: max(0, 10 - place) for place, row in enumerate(by_other)}
    by_own = sorted(range(len(scores)), key=lambda row: -scores[row])
    reached, best = (
        sum(worth[row] / math.log2(place + 2) for place, row in enumerate(order[:10]))
        for order in (by_own, by_other)
    )
    return reached / best


@pytest.mark.parametrize("count", [2, 7, 10, 25])
def test_ndcg_against_a_slow_computation(count):
    draw = torch.Generator().manual_seed(count)
    own, other = torch.randn(2, count, generator=draw).double()
    assert ndcg(own, other) == pytest.approx(slow_ndcg(own.tolist(), other.tolist()))
    assert ndcg(other, other) == 1


def test_means_over_groups_of_several_rows():
    others = torch.tensor([3.0, 2.0, 1.0, 5.0, 4.0, 9.0])
    scores = torch.tensor([3.0, 1.0, 2.0, 4.0, 5.0, 0.0])
    found = compare_orders(scores, others, ["a", "a", "a", "b", "b", "alone"])
    assert found is not None
    gains = [
        slow_ndcg(scores[part].tolist(), others[part].tolist()) for part in (slice(3), slice(3, 5))
    ]
    assert found == {
        "groups": 2,
        "same_first": 0.5,
        "ndcg": pytest.approx(sum(gains) / 2),
        "low_ndcg": pytest.approx(min(gains) + 0.1 * (max(gains) - min(gains))),
        "spearman": pytest.approx((0.5 - 1) / 2),
    }
    assert compare_orders(scores, others, range(6)) is None
