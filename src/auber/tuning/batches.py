"""Training rows as batches: every row once an epoch, rows of like length together, padded once and cut to size.

A difference from the paper, whose batches are drawn without regard to length: grouping halves what a step computes where
lengths vary as in RTE. Which rows meet in a batch stays random: only rows of one shuffled pool are sorted, and the order
of the batches is shuffled again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from auber.tasks.encoding import EncodedRows, pad_batch

# Batches that are sorted together. On RTE's lengths with batches of 32, padding adds 96 % to the tokens without a pool,
# 11 % with 8 batches a pool and 4 % with 32, where the batches of an epoch resemble those of the last more and more.
POOL_BATCHES = 8

# Widths of batches are rounded up to this where steps are recorded: four recordings for rows of up to 128 tokens.
RECORDED_WIDTH = 32


class LengthGroups(Sampler[int]):
    """Row numbers in an order by seed and epoch in which each `batch_size` of them have like lengths.

    The rows that fill no batch come last; they are a random draw, so no length is slighted.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self._lengths = np.asarray(lengths)
        self._batch_size, self._seed, self._epoch = batch_size, seed, 0

    def __len__(self) -> int:
        return len(self._lengths)

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass that epoch's; the data loader calls it."""
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
    """Turns row numbers into a batch: the rows are padded once, a batch is a slice as wide as its longest row.

    The width is rounded up to `width_multiple`, but never beyond the longest row of all.
    """

    def __init__(self, rows: EncodedRows, width_multiple: int = 1) -> None:
        self._columns = pad_batch([rows[row] for row in range(len(rows))], rows.pad_token_id)
        self._lengths, self._width_multiple = rows.lengths, width_multiple

    def __call__(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """The batch: what is given for each token is (rows, width), what is given for a row (rows,)."""
        longest = max(self._lengths[row] for row in rows)
        width = -(-longest // self._width_multiple) * self._width_multiple
        chosen = torch.tensor(rows)
        return {
            name: column[chosen] if column.ndim == 1 else column[:, :width][chosen]
            for name, column in self._columns.items()
        }
