"""The descriptions of attention against what they say, worked out one pair of tokens at a time."""

from __future__ import annotations

import math

import torch

from auber.models.encoders.attention import Attention, Disentangled, Rotation

ROWS, HEADS, LENGTH, SIZE = 2, 3, 5, 4


def projected(length=LENGTH, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(ROWS, HEADS, length, SIZE, generator=generator) for _ in range(2)]


def rotation(longest):
    angles = torch.arange(longest)[:, None] * torch.tensor([1.0, 0.1])  # (longest, head_dim / 2)
    angles = angles.repeat(1, 2)
    return Rotation(angles.cos(), angles.sin())


def test_rotated_scores_know_distances_and_nothing_else():
    attention = Attention(0.5, rotation=rotation(8))
    query, key = (
        torch.ones(ROWS, HEADS, LENGTH, SIZE) * torch.randn(SIZE) for _ in range(2)
    )  # every token alike
    scores = attention.scores(query, key)
    assert torch.allclose(scores[..., 1:, 1:], scores[..., :-1, :-1], atol=1e-6)
    assert not torch.allclose(scores[..., 0, 1], scores[..., 1, 0], atol=1e-3)
    expected = 0.5 * (query[0, 0, 0] * key[0, 0, 0]).sum()
    assert torch.allclose(scores[..., 0, 0], expected, atol=1e-6)  # no distance, no turn


def test_the_first_tokens_may_ask_alone():
    query, key = projected()
    bias = torch.arange(64.0).view(1, 8, 8)
    for attention in (
        Attention(0.5, bias=bias),
        Attention(0.5, bias=bias, rotation=rotation(8)),
        disentangled(8),
    ):
        whole = attention.scores(query, key)
        assert torch.allclose(attention.scores(query[:, :, :1], key), whole[:, :, :1], atol=1e-6)


def disentangled(longest, keys=True, queries=True):
    """Distances beyond 2 share a place."""
    generator = torch.Generator().manual_seed(1)
    tables = [torch.randn(HEADS, 5, SIZE, generator=generator) for _ in range(2)]
    distances = torch.arange(longest)[:, None] - torch.arange(longest)
    places = distances.clamp(-2, 2) + 2
    terms = Disentangled.of(
        tables[0] if keys else None, tables[1] if queries else None, places, 0.5
    )
    return Attention(0.5, disentangled=terms)


def test_content_meets_positions_both_ways():
    query, key = projected()
    for keys, queries in ((True, True), (True, False), (False, True)):
        attention = disentangled(8, keys, queries)
        terms = attention.disentangled
        found = attention.scores(query, key)
        for row, head, asking, asked in [
            (0, 0, 0, 0),
            (1, 2, 0, 4),
            (0, 1, 4, 0),
            (1, 1, 2, 3),
            (0, 2, 3, 1),
        ]:
            place = max(-2, min(2, asking - asked)) + 2
            score = query[row, head, asking] @ key[row, head, asked]
            if keys:
                score = score + query[row, head, asking] @ terms.position_keys[head, place]
            if queries:
                score = score + key[row, head, asked] @ terms.position_queries[head, place]
            assert math.isclose(found[row, head, asking, asked], 0.5 * score, abs_tol=1e-5)
