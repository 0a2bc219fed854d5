"""Metrics of sentence encoders, against slow computations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import spearmanr

from auber.metrics import vectors
from auber.metrics.task_metrics import METRICS, predicts_one_vector

COSINE, PAIRS = METRICS["cosine"], METRICS["pair_spearman"]


def draw(rows=40, dimensions=8, noise=0.3, seed=0):
    """Return vectors of a pruned model and of the unpruned one."""
    generator = torch.Generator().manual_seed(seed)
    unpruned = torch.randn(rows, dimensions, generator=generator)
    return unpruned + noise * torch.randn(rows, dimensions, generator=generator), unpruned


def compute_slowly(pruned, unpruned):
    """Return the rank correlation over each row's ten nearest."""
    own, other = (F.normalize(each, dim=1).double() for each in (pruned, unpruned))
    pairs = []
    for row in range(len(own)):
        similar = (other @ other[row]).tolist()
        order = sorted(range(len(own)), key=lambda each: -similar[each])
        near = [each for each in order if each != row][: vectors.NEIGHBOURS]
        pairs += [(float(own[row] @ own[each]), similar[each]) for each in near]
    return spearmanr(np.array(pairs)).statistic


def test_the_rank_correlation_is_that_of_near_pairs():
    pruned, unpruned = draw()
    expected = compute_slowly(pruned, unpruned)
    assert 0.3 < expected < 0.95
    assert PAIRS.compute(pruned, unpruned).item() == pytest.approx(expected, abs=1e-6)
    assert PAIRS.compute(2 * unpruned, unpruned).item() == pytest.approx(1)
    every = torch.triu_indices(40, 40, 1)
    own, other = (F.normalize(each, dim=1) @ F.normalize(each, dim=1).T for each in draw())
    assert expected < spearmanr(own[*every], other[*every]).statistic, "random pairs are easier"


def test_the_cosine():
    pruned, unpruned = draw()
    products = (F.normalize(pruned, dim=1) * F.normalize(unpruned, dim=1)).sum(1)
    assert COSINE.compute(pruned, unpruned).item() == pytest.approx(products.mean().item())
    assert COSINE.by_row(COSINE.statistics(pruned, unpruned)) == pytest.approx(products)


@pytest.mark.parametrize("rows", [40, 700])
def test_the_order_of_rows_does_not_matter(rows, monkeypatch):
    pruned, unpruned = draw(rows)
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(1))
    found = PAIRS.compute(pruned[order], unpruned[order]).item()
    assert found == pytest.approx(PAIRS.compute(pruned, unpruned).item(), abs=1e-5)
    if rows > vectors.ANCHORS:  # a sample of the rows is paired with all others
        assert len(vectors.pair_similarities(PAIRS.statistics(pruned, unpruned))) == 5000
        monkeypatch.setattr(vectors, "ANCHORS", rows)
        assert found == pytest.approx(PAIRS.compute(pruned, unpruned).item(), abs=0.02)


def test_the_same_row_twice_makes_no_pair():
    pruned, unpruned = draw(12)
    pairs = vectors.pair_similarities(PAIRS.statistics(*(each.repeat(3, 1) for each in draw(12))))
    assert pairs[:, 1].max() < 0.999
    assert PAIRS.compute(pruned[:1].repeat(5, 1), unpruned[:1].repeat(5, 1)).item() == 0


def test_undefined_values():
    pruned, unpruned = draw(5)
    for rows in range(3):
        assert PAIRS.compute(pruned[:rows], unpruned[:rows]).item() == 0
        assert PAIRS.is_blind(unpruned[:rows], 8)
    assert not PAIRS.is_blind(unpruned, 8)
    assert PAIRS.is_blind(unpruned[:1].expand(5, 8), 8)
    assert COSINE.compute(pruned[:0], unpruned[:0]).item() == 0
    assert PAIRS.compute(unpruned[:1].expand(5, 8), unpruned).item() == 0
    pruned[2, 3] = torch.nan
    for metric in (COSINE, PAIRS):
        assert metric.compute(pruned, unpruned).isnan()


def test_shards_make_the_whole():
    pruned, unpruned = draw()
    for metric in (COSINE, PAIRS):
        parts = [
            metric.statistics(pruned[part], unpruned[part]) for part in (slice(0, 9), slice(9, 40))
        ]
        whole = metric.compute(pruned, unpruned)
        torch.testing.assert_close(metric.finish(metric.combine(parts)), whole)


def test_one_vector_for_all_rows():
    pruned, _ = draw(6)
    assert not predicts_one_vector(pruned)
    assert predicts_one_vector(pruned[:1].expand(6, 8))
    assert not predicts_one_vector(pruned[:1])
