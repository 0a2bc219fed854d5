"""A batch in parts that are run one after the other, where the whole does not fit into memory.

The loss of a batch is a mean over what it teaches: its rows, its tagged words, or its rows with an answer. Parts hold
different numbers of these, so a part's own mean counts by its share of them; then the gradients of the parts add up to those
of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from auber.data.encoding import part_batch
from auber.data.targets import IGNORED
from auber.metrics.tags import NO_TAG


def cut_batch(
    batch: dict[str, Tensor], micro_batch: int
) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    """Parts of at most so many rows, each with its share of the batch's loss, a scalar on the device."""
    counts = _count_items(part_batch(batch)[1])  # (rows,)
    total = counts.sum().clamp(min=1)  # a batch may teach nothing
    for start in range(0, len(counts), micro_batch):
        rows = slice(start, start + micro_batch)
        yield {name: column[rows] for name, column in batch.items()}, counts[rows].sum() / total


def _count_items(targets: dict[str, Tensor]) -> Tensor:
    """How much of what the loss is a mean over is in each row: (rows,)."""
    if "start_positions" in targets:
        return (targets["start_positions"] != IGNORED).long()
    labels = targets["labels"]
    if labels.ndim == 2:  # (rows, length)
        return (labels != NO_TAG).sum(1)
    return torch.ones_like(labels, dtype=torch.int64)
