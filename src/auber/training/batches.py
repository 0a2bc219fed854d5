"""Training rows as batches, grouped by length and padded to the longest row of the batch.

Grouping is a difference from the paper; it halves the computation where lengths vary as in RTE.
Batches stay random: only the rows of one shuffled pool are sorted, and the order of the batches is
shuffled again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from auber.data.encoding import EncodedRows, pad_batch, part_batch
from auber.data.targets import IGNORED
from auber.metrics.tags import NO_TAG

# Batches that are sorted together. On RTE's lengths with batches of 32, padding adds 96 % to the
# tokens without a pool, 11 % with 8 batches per pool and 4 % with 32. The larger the pool, the more
# the batches of one epoch resemble those of the next.
POOL_BATCHES = 8

# The width of captured batches is rounded up to this: at most eight graphs for rows of up to 128
# tokens. Multiples of 32 would need fewer, but 8 % more tokens on RTE and 75 % more on CoLA.
CAPTURE_WIDTH = 16


class LengthGroups(Sampler[int]):
    """Row indices in a random order by seed and epoch that groups rows of similar length.

    Every `batch_size` indices form a batch. The rows that fill no batch come last; they are a
    random draw of all lengths.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self._lengths = np.asarray(lengths)
        self._batch_size, self._seed, self._epoch = batch_size, seed, 0

    def __len__(self) -> int:
        return len(self._lengths)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass; the data loader calls this."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[int]:
        generator = np.random.default_rng([self._seed, self._epoch])
        order = generator.permutation(len(self._lengths))
        batched, rest = np.split(order, [len(order) // self._batch_size * self._batch_size])
        pool_size = POOL_BATCHES * self._batch_size
        for start in range(0, len(batched), pool_size):
            pool = batched[start : start + pool_size]
            pool[:] = pool[np.argsort(self._lengths[pool], kind="stable")]
        batches = generator.permutation(batched.reshape(-1, self._batch_size))
        return iter([*batches.reshape(-1).tolist(), *rest.tolist()])


class RowCollator:
    """Turns row indices into a padded batch, so that only the rows of a batch are ever padded.

    The width of a batch is rounded up to `width_multiple`, but never beyond the longest row of all.
    """

    def __init__(self, rows: EncodedRows, width_multiple: int = 1) -> None:
        self._rows, self._width_multiple, self._widest = rows, width_multiple, max(rows.lengths)

    def __call__(self, indices: Sequence[int]) -> dict[str, Tensor]:
        """Return the batch: columns by token are (rows, width), columns by row (rows,)."""
        chosen = [self._rows[index] for index in indices]
        return pad_batch(chosen, self._rows.pad_token_id, self._width_multiple, self._widest)


def cut_batch(
    batch: dict[str, Tensor], micro_batch: int
) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    """Yield parts of at most `micro_batch` rows, each with its share of the batch's loss.

    The loss of a batch is a mean over its rows, its tagged words or its rows with an answer. A
    part's mean is weighted by its share of them, so that the parts' gradients add up to the
    batch's. The share is a scalar on the device.
    """
    counts = _count_items(part_batch(batch)[1])  # (rows,)
    total = counts.sum().clamp(min=1)  # a batch may have none
    for start in range(0, len(counts), micro_batch):
        rows = slice(start, start + micro_batch)
        yield {name: column[rows] for name, column in batch.items()}, counts[rows].sum() / total


def _count_items(targets: dict[str, Tensor]) -> Tensor:
    """Return how many terms of the loss each row has: (rows,)."""
    if "start_positions" in targets:
        return (targets["start_positions"] != IGNORED).long()
    labels = targets["labels"]
    if labels.ndim == 2 and not labels.is_floating_point():  # tags: (rows, length)
        return (labels != NO_TAG).sum(1)
    return torch.ones(len(labels), dtype=torch.int64, device=labels.device)
