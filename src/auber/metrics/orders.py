"""Orders: how a model orders the rows of a group, beside the order of another model.

A group is for instance a query with its candidates. Of each group with at least two rows:

- whether both models place the same row first;
- NDCG@10 relative to the other model's order: its first row is worth 10, the next 9, and so on to
  0. The sum of what a row is worth, divided by log2(1 + its place), over the first ten places, as a
  share of that of the other order;
- the rank correlation of Spearman.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from statistics import fmean

import torch
from torch import Tensor

from auber.metrics.task_metrics import get_metric

DEPTH = 10
_LOW = 0.1  # share of the groups below the low NDCG


def compare_orders(
    scores: Tensor, others: Tensor, groups: Sequence[Hashable]
) -> dict[str, float] | None:
    """Return the means over groups, of scores (rows,) beside others; None without such groups."""
    members: dict[Hashable, list[int]] = defaultdict(list)
    for row, group in enumerate(groups):
        members[group].append(row)
    spearman = get_metric("spearman")
    found: list[tuple[float, float, float]] = []
    for rows in members.values():
        if len(rows) > 1:
            own, wanted = scores[rows].double(), others[rows].double()
            same = float(own.argmax() == wanted.argmax())
            found.append((same, ndcg(own, wanted), float(spearman.compute(own, wanted))))
    if not found:
        return None
    same_first, gains, correlations = zip(*found, strict=True)
    return {
        "groups": len(found),
        "same_first": fmean(same_first),
        "ndcg": fmean(gains),
        "low_ndcg": float(torch.tensor(gains).double().quantile(_LOW)),
        "spearman": fmean(correlations),
    }


def ndcg(scores: Tensor, others: Tensor) -> float:
    """Return NDCG@10 of one group relative to the other order, both (rows,)."""
    places = torch.arange(len(scores), dtype=torch.float64)
    discounts = (places[:DEPTH] + 2).log2()
    worth = (DEPTH - places).clamp(min=0)  # by the other order
    by_row = torch.empty_like(worth)
    by_row[others.argsort(descending=True, stable=True)] = worth
    reached = by_row[scores.argsort(descending=True, stable=True)][:DEPTH]
    return float((reached / discounts).sum() / (worth[:DEPTH] / discounts).sum())
