"""What a layer's attention does beside scaled products of queries and keys: a description that any code can compute by.

An `Attention` holds for rows of at most so many tokens as it was made for. Queries and keys are (rows, heads, tokens,
head_dim); where fewer tokens ask than are asked, they are the first of their row.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# What a token out of reach adds to a score. Finite, because softmax by parts may meet nothing but such tokens at first.
OUT_OF_REACH = -1e9


@dataclass(frozen=True)
class Rotation:
    """Rotary positions: queries and keys are turned, each pair of features by an angle that grows with the position."""

    cosine: Tensor  # (longest, head_dim), sine alike
    sine: Tensor

    def __call__(self, projected: Tensor, positions: Tensor) -> Tensor:
        """Turn (..., tokens, head_dim) by the positions (tokens,)."""
        exact = projected.float()
        left, right = exact.chunk(2, dim=-1)
        across = torch.cat((-right, left), dim=-1)
        return (exact * self.cosine[positions] + across * self.sine[positions]).to(projected.dtype)


@dataclass(frozen=True)
class Disentangled:
    """Scores between content and relative positions: queries meet a position's key, keys meet its query."""

    position_keys: Tensor | None  # (heads, places, head_dim), position_queries alike
    position_queries: Tensor | None
    places: Tensor  # (longest, longest): the place of each distance, by asking and asked token; grows with their distance
    scale: float
    lowest: tuple[
        int, ...
    ]  # the place of the farthest token behind the first one, by length; known without the device
    highest: tuple[int, ...]  # the place of the first token for the last one, by length

    @classmethod
    def of(
        cls,
        position_keys: Tensor | None,
        position_queries: Tensor | None,
        places: Tensor,
        scale: float,
    ) -> Disentangled:
        """From the places of all distances."""
        lowest, highest = tuple(places[0].tolist()), tuple(places[:, 0].tolist())
        return cls(position_keys, position_queries, places, scale, lowest, highest)

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        """What is added to the scaled scores: (rows, heads, asking, asked)."""
        rows, heads, asking, _ = query.shape
        asked = key.shape[2]
        # The places that rows of this length can meet lie side by side: no product with others.
        low, high = self.lowest[asked - 1], self.highest[asking - 1] + 1
        index = (self.places[:asking, :asked] - low).expand(rows, heads, asking, asked)
        added = query.new_zeros(rows, heads, asking, asked)
        if self.position_keys is not None:
            met = query @ self.position_keys[:, low:high].transpose(
                -1, -2
            )  # (rows, heads, asking, places)
            added += met.gather(-1, index)
        if self.position_queries is not None:
            met = key @ self.position_queries[:, low:high].transpose(
                -1, -2
            )  # (rows, heads, asked, places)
            added += met.gather(-1, index.transpose(-1, -2)).transpose(-1, -2)
        return added * self.scale


@dataclass(frozen=True)
class Attention:
    """How one layer attends: softmax of `scores`, times the values."""

    scale: float
    bias: Tensor | None = (
        None  # (present_heads or 1, longest, longest), a function of key minus query position
    )
    rotation: Rotation | None = None
    disentangled: Disentangled | None = None

    def added(self, query: Tensor, key: Tensor) -> Tensor | None:
        """What is added to the scaled scores, broadcast to (rows, heads, asking, asked), or None."""
        if self.disentangled is not None:
            return self.disentangled(query, key)
        return None if self.bias is None else self.bias[:, : query.shape[-2], : key.shape[-2]]

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """The scores before softmax (rows, heads, asking, asked) of queries and keys as they were projected."""
        if self.rotation is not None:
            positions = torch.arange(key.shape[-2], device=key.device)
            query, key = (
                self.rotation(query, positions[: query.shape[-2]]),
                self.rotation(key, positions),
            )
        scores = query @ key.transpose(-1, -2) * self.scale
        added = self.added(query, key)
        return scores if added is None else scores + added
