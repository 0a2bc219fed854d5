"""The vectors of a pruned sentence encoder beside those of the unpruned one.

What an encoder is used for depends on which texts it puts closest, and any two texts are told apart
from random ones. So similarities are compared on near pairs only: each row with the `NEIGHBOURS`
nearest to it in the unpruned model. Rows with the same vector make no pair. Of more than `ANCHORS`
rows, so many are paired with others; which ones depends on their vectors but not on their order.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

NEIGHBOURS = 10
ANCHORS = 500
_SAME = 1 - 1e-6  # the cosine of equal vectors, up to rounding


def cosines(vectors: Tensor, unpruned: Tensor) -> Tensor:
    """Return the cosine of each row's two vectors, float64 (rows,)."""
    return F.cosine_similarity(vectors.double(), unpruned.double(), dim=-1)


def vector_rows(vectors: Tensor, unpruned: Tensor) -> Tensor:
    """Return both vectors of each row side by side, float32 (rows, 2, dimensions)."""
    return torch.stack((vectors.float(), unpruned.float()), dim=1)


def pair_similarities(rows: Tensor) -> Tensor:
    """Return the cosine of each near pair in both models, float64 (pairs, 2); see `vector_rows`."""
    # In double precision near ties come out alike on every device.
    own, unpruned = F.normalize(rows.double(), dim=-1).unbind(1)  # (rows, dimensions)
    anchors = _choose_anchors(rows[:, 1])
    similar = unpruned[anchors] @ unpruned.T  # (anchors, rows)
    similar = torch.where(similar < _SAME, similar, -torch.inf)  # also a row and itself
    found = similar.topk(min(NEIGHBOURS, max(0, len(rows) - 1)), dim=1)
    # A pair of equal rows becomes the anchor's nearest pair.
    others = torch.where(found.values.isfinite(), found.indices, found.indices[:, :1])
    pairs = [(each[anchors, None] * each[others]).sum(-1).flatten() for each in (own, unpruned)]
    return torch.stack(pairs, dim=1)


def _choose_anchors(unpruned: Tensor) -> Tensor:
    """Return the indices of the rows to pair with others."""
    if len(unpruned) <= ANCHORS:
        return torch.arange(len(unpruned), device=unpruned.device)
    # The digits behind the first ones are as good as random.
    return (1e4 * unpruned[:, 0].double()).frac().abs().topk(ANCHORS).indices
