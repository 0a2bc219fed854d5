"""Compare the answers of a model with those of the unpruned one.

Within a query, the ten candidates are ordered by score; the relevance of a candidate is 10 for the
one that the unpruned model puts first, down to 1 for its last.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def compare_scores(unpruned: Array, own: Array) -> dict[str, float]:
    """Return the fidelity of scores of candidates: (queries, candidates)."""
    correlations = [rank_correlation(*pair) for pair in zip(unpruned, own, strict=True)]
    return {
        "rank correlation within queries": float(np.mean(correlations)),
        "same first place": float(np.mean(unpruned.argmax(1) == own.argmax(1))),
        "NDCG@10": float(np.mean([_ndcg(*pair) for pair in zip(unpruned, own, strict=True)])),
        "rank correlation over all": rank_correlation(unpruned.ravel(), own.ravel()),
        "variance explained": float(np.corrcoef(unpruned.ravel(), own.ravel())[0, 1]) ** 2,
    }


def compare_vectors(
    unpruned: Array, own: Array, pairs: Sequence[tuple[int, int]]
) -> dict[str, float]:
    """Return the fidelity of embeddings (texts, hidden), with the similarities of near pairs."""
    unpruned, own = (
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (unpruned, own)
    )
    first, second = np.array(pairs).T
    similarities = [(vectors[first] * vectors[second]).sum(1) for vectors in (unpruned, own)]
    return {
        "rank correlation of near pairs": rank_correlation(*similarities),
        "cosine": float((unpruned * own).sum(1).mean()),
    }


def compare_tags(unpruned: NDArray[np.int64], own: NDArray[np.int64]) -> dict[str, float]:
    """Return the share of words with the same tag, and that of the words that are not plain.

    Plain is the tag 0.
    """
    same, marked = unpruned == own, (unpruned != 0) | (own != 0)
    return {
        "same tag": float(same.mean()),
        "same tag where either is not o": float(same[marked].mean()) if marked.any() else 1.0,
    }


def rank_correlation(first: Array, second: Array) -> float:
    """Return Spearman's correlation; 0 if all values of one side are equal."""
    from scipy.stats import spearmanr

    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(spearmanr(first, second).statistic)


def _ndcg(unpruned: Array, own: Array) -> float:
    """Return the discounted gain of the own order, divided by that of the unpruned order."""
    relevance = unpruned.argsort().argsort() + 1.0
    discounts = 1 / np.log2(np.arange(2, len(own) + 2))
    order = np.argsort(-own, kind="stable")
    return float(relevance[order] @ discounts / (np.sort(relevance)[::-1] @ discounts))
