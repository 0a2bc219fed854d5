"""Compare the answers of a model with those of the unpruned one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from auber.metrics.orders import compare_orders
from auber.metrics.task_metrics import get_metric


def compare_scores(unpruned: Tensor, own: Tensor) -> dict[str, float]:
    """Return the fidelity of scores of candidates: (queries, candidates)."""
    groups = [query for query, scores in enumerate(unpruned) for _ in scores]
    unpruned, own = unpruned.reshape(-1), own.reshape(-1)
    orders = compare_orders(own, unpruned, groups)
    assert orders is not None, "queries have several candidates"
    return {
        "rank correlation within queries": orders["spearman"],
        "same first place": orders["same_first"],
        "NDCG@10": orders["ndcg"],
        "variance explained": float(get_metric("r_squared").compute(own, unpruned)),
    }


def compare_vectors(
    unpruned: Tensor, own: Tensor, pairs: Sequence[tuple[int, int]]
) -> dict[str, float]:
    """Return the fidelity of embeddings (texts, hidden), with the similarities of near pairs."""
    unpruned, own = F.normalize(unpruned.double(), dim=-1), F.normalize(own.double(), dim=-1)
    first, second = torch.tensor(pairs).T
    wanted, found = ((vectors[first] * vectors[second]).sum(-1) for vectors in (unpruned, own))
    return {
        "rank correlation of near pairs": float(get_metric("spearman").compute(found, wanted)),
        "cosine": float((unpruned * own).sum(-1).mean()),
    }


def compare_tags(unpruned: Tensor, own: Tensor) -> dict[str, float]:
    """Return the share of words with the same tag, and that of the words that are not plain.

    Plain is the tag 0.
    """
    same, marked = (unpruned == own).double(), (unpruned != 0) | (own != 0)
    return {
        "same tag": float(same.mean()),
        "same tag where either is not o": float(same[marked].mean()) if marked.any() else 1.0,
    }
