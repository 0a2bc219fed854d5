"""Training rows as batches: every row once an epoch, rows of like length together, padded to the longest of them.

A difference from the paper, whose batches are drawn without regard to length: grouping halves what a step computes where
lengths vary as in RTE. Which rows meet in a batch stays random: only rows of one shuffled pool are sorted, and the order
of the batches is shuffled again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Sampler

from auber.data.encoding import EncodedRows, flat_columns, padding_of

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
    """Turns row numbers into a batch as wide as its longest row; until then the tokens of all rows stand one after another.

    Rows that were padded once for all would take the room of the longest, though one among thousands may be long. The width is
    rounded up to `width_multiple`, but never beyond the longest row of all.
    """

    def __init__(self, rows: EncodedRows, width_multiple: int = 1) -> None:
        self._width_multiple, self._longest = width_multiple, max(rows.lengths)
        self._lengths = np.array(rows.lengths)
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._by_row: dict[str, Tensor] = {}
        self._by_token: dict[str, NDArray[np.int32]] = {}  # (tokens + 1,): what pads comes last
        for name, values in flat_columns([rows[row] for row in range(len(rows))]).items():
            if isinstance(values, Tensor):
                self._by_row[name] = values
            else:
                self._by_token[name] = np.append(
                    values, np.int32(padding_of(name, rows.pad_token_id))
                )

    def __call__(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """The batch: what is given for each token is (rows, width), what is given for a row (rows,)."""
        chosen = np.asarray(rows)
        lengths = self._lengths[chosen]
        width = min(
            -(-int(lengths.max()) // self._width_multiple) * self._width_multiple, self._longest
        )
        positions = np.arange(width)
        places = np.where(
            positions < lengths[:, None], self._starts[chosen][:, None] + positions, -1
        )  # (rows, width)
        batch = {
            name: torch.from_numpy(values[places].astype(np.int64))
            for name, values in self._by_token.items()
        }
        return batch | {
            name: values[torch.from_numpy(chosen)] for name, values in self._by_row.items()
        }
