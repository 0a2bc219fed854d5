"""A description of a layer's attention that any implementation can compute from.

An `Attention` is valid for rows up to the length it was made for. Queries and keys have shape
(rows, heads, tokens, head_dim); if there are fewer queries than keys, they are those of the first
tokens of a row.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# Added to the score of a token outside the window. Finite, because a softmax computed in parts may
# meet only such tokens at first.
OUT_OF_REACH = -1e9


@dataclass(frozen=True)
class Rotation:
    """Rotary positions: pairs of features are rotated by an angle that grows with the position."""

    cosine: Tensor  # (longest, head_dim), as is sine
    sine: Tensor

    def __call__(self, projected: Tensor, positions: Tensor) -> Tensor:
        """Rotate (..., tokens, head_dim) by the positions (tokens,)."""
        exact = projected.float()
        left, right = exact.chunk(2, dim=-1)
        across = torch.cat((-right, left), dim=-1)
        return (exact * self.cosine[positions] + across * self.sine[positions]).to(projected.dtype)


@dataclass(frozen=True)
class Disentangled:
    """Scores between content and relative positions, in both directions."""

    position_keys: Tensor | None  # (heads, places, head_dim), as is position_queries
    position_queries: Tensor | None
    # (longest, longest): the place in the tables by query and key; it grows with their distance.
    places: Tensor
    scale: float
    # By row length, on the host: the place of the last key for the first query ...
    lowest: tuple[int, ...]
    highest: tuple[int, ...]  # ... and of the first key for the last query.

    @classmethod
    def of(
        cls,
        position_keys: Tensor | None,
        position_queries: Tensor | None,
        places: Tensor,
        scale: float,
    ) -> Disentangled:
        """Build the description from the places of all distances."""
        lowest, highest = tuple(places[0].tolist()), tuple(places[:, 0].tolist())
        return cls(position_keys, position_queries, places, scale, lowest, highest)

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the term to add to the scaled scores (rows, heads, queries, keys)."""
        rows, heads, queries, _ = query.shape
        keys = key.shape[2]
        # The places that occur in rows of this length are adjacent; skip products with the others.
        low, high = self.lowest[keys - 1], self.highest[queries - 1] + 1
        index = (self.places[:queries, :keys] - low).expand(rows, heads, queries, keys)
        added = query.new_zeros(rows, heads, queries, keys)
        if self.position_keys is not None:
            # (rows, heads, queries, places)
            products = query @ self.position_keys[:, low:high].transpose(-1, -2)
            added += products.gather(-1, index)
        if self.position_queries is not None:
            # (rows, heads, keys, places)
            products = key @ self.position_queries[:, low:high].transpose(-1, -2)
            added += products.gather(-1, index.transpose(-1, -2)).transpose(-1, -2)
        return added * self.scale


@dataclass(frozen=True)
class Attention:
    """How one layer attends: softmax of `scores`, times the values."""

    scale: float
    # (present_heads or 1, longest, longest), a function of key minus query position
    bias: Tensor | None = None
    rotation: Rotation | None = None
    disentangled: Disentangled | None = None

    def added(self, query: Tensor, key: Tensor) -> Tensor | None:
        """Return the term to add to the scaled scores, broadcastable to their shape, or None."""
        if self.disentangled is not None:
            return self.disentangled(query, key)
        return None if self.bias is None else self.bias[:, : query.shape[-2], : key.shape[-2]]

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the scores before softmax (rows, heads, queries, keys)."""
        if self.rotation is not None:
            positions = torch.arange(key.shape[-2], device=key.device)
            query = self.rotation(query, positions[: query.shape[-2]])
            key = self.rotation(key, positions)
        scores = query @ key.transpose(-1, -2) * self.scale
        added = self.added(query, key)
        return scores if added is None else scores + added
