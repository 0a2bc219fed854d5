"""Rows packed into batches: their tokens one after the other, without padding.

Rows are sorted by length, longest first, so rows of equal length are adjacent. A group of them is a
plain (rows, length) block for attention; almost everything else in a layer works on single tokens.
A packed batch may hold several copies of the same rows, one after the other; a block then has the
rows of all copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

import torch


@dataclass(frozen=True)
class PackedBatch:
    """The shape of some packed rows: all that attention needs to know."""

    lengths: tuple[int, ...]  # longest first, copy after copy
    device: torch.device
    times: int = 1  # the number of copies
    _copies: dict[int, PackedBatch] = field(default_factory=dict, repr=False, compare=False)

    @property
    def num_tokens(self) -> int:
        """The number of tokens of all rows."""
        return sum(self.lengths)

    @cached_property
    def starts(self) -> torch.Tensor:
        """Where each row begins, and the end: (rows + 1,)."""
        lengths = torch.tensor((0, *self.lengths), dtype=torch.int32)
        return lengths.cumsum(0, dtype=torch.int32).to(self.device)

    @cached_property
    def firsts(self) -> torch.Tensor:
        """The index of each row's first token: (rows,)."""
        return self.starts[:-1].long()

    @cached_property
    def positions(self) -> torch.Tensor:
        """The position of each token in its row: (tokens,)."""
        return torch.cat([torch.arange(length) for length in self.lengths]).to(self.device)

    @cached_property
    def groups(self) -> tuple[tuple[int, int], ...]:
        """The runs of equally long rows of one copy: (number of rows, length)."""
        one_copy = self.lengths[: len(self.lengths) // self.times]
        return tuple((len(list(members)), length) for length, members in groupby(one_copy))

    def blocks(self, packed: torch.Tensor, *, first_only: bool = False) -> list[torch.Tensor]:
        """Split (tokens, width) by group: (times * rows of the group, length, width) each.

        For first tokens only, (rows, width), a block is (times * rows of the group, 1, width).
        """
        width = packed.shape[1]
        # (times, tokens or rows of a copy, width)
        copies = packed.view(self.times, len(packed) // self.times, width)
        blocks, start = [], 0
        for count, length in self.groups:
            length = 1 if first_only else length
            span = copies.narrow(1, start, count * length)
            blocks.append(span.reshape(self.times * count, length, width))
            start += count * length
        return blocks

    def join(self, blocks: Sequence[torch.Tensor]) -> torch.Tensor:
        """Invert `blocks`: return (tokens, width), or (rows, width) from blocks of one token."""
        width = blocks[0].shape[-1]
        spans = [block.reshape(self.times, -1, width) for block in blocks]
        return torch.cat(spans, dim=1).flatten(0, 1)

    def repeated(self, times: int) -> PackedBatch:
        """Return the same rows several times; the same object for the same number of copies.

        The cached properties must exist before a pass over the batch is captured.
        """
        if times == 1:
            return self
        return self._copies.setdefault(times, PackedBatch(self.lengths * times, self.device, times))


def cut_rows(lengths: Sequence[int], tokens_per_batch: int) -> list[list[int]]:
    """Cut row indices, longest first, into batches of at most this many tokens, or of one row."""
    batches: list[list[int]] = []
    room = 0
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if lengths[row] > room:
            batches.append([])
            room = max(tokens_per_batch, lengths[row])
        batches[-1].append(row)
        room -= lengths[row]
    return batches
