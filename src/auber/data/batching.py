"""Rows into batches of like length, by a budget of tokens: hardly any padding, and as few passes as memory allows."""

from __future__ import annotations

from collections.abc import Sequence


def length_batches(lengths: Sequence[int], tokens_per_batch: int) -> list[list[int]]:
    """Row indices, longest first, cut so that rows times longest row stays within the budget (one row at least)."""
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    batches: list[list[int]] = []
    for row in order:
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= tokens_per_batch:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches
