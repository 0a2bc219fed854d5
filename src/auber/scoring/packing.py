"""Rows packed into slabs: their tokens one after the other, without padding.

Rows are sorted by length, longest first, so the rows of one length lie together: a group of them is a plain (rows, length)
block for attention, and almost everything else in a layer works on single tokens and needs no rows at all. A slab may be
several copies of the same rows, one after the other; a block then has the rows of all copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

import torch

from auber.data.encoding import EncodedRows, pad_batch, part_batch


@dataclass(frozen=True)
class Slab:
    """The shape of some packed rows: all that attention must know."""

    lengths: tuple[int, ...]  # longest first, copy after copy
    device: torch.device
    times: int = 1  # the number of copies
    _copies: dict[int, Slab] = field(default_factory=dict, repr=False, compare=False)

    @property
    def num_tokens(self) -> int:
        """Tokens of all rows."""
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
        """Where each token stands in its row: (tokens,)."""
        return torch.cat([torch.arange(length) for length in self.lengths]).to(self.device)

    @cached_property
    def groups(self) -> tuple[tuple[int, int], ...]:
        """Runs of equally long rows of one copy: (number of rows, length)."""
        one_copy = self.lengths[: len(self.lengths) // self.times]
        return tuple((len(list(members)), length) for length, members in groupby(one_copy))

    def blocks(self, packed: torch.Tensor, *, first_only: bool = False) -> list[torch.Tensor]:
        """Something of each token (tokens, width), group by group: (times * rows of the group, length, width).

        Of first tokens alone, (rows, width), a block is (times * rows of the group, 1, width).
        """
        width = packed.shape[1]
        copies = packed.view(
            self.times, len(packed) // self.times, width
        )  # tokens, or rows, of a copy
        blocks, start = [], 0
        for count, length in self.groups:
            length = 1 if first_only else length
            span = copies.narrow(1, start, count * length)
            blocks.append(span.reshape(self.times * count, length, width))
            start += count * length
        return blocks

    def join(self, blocks: Sequence[torch.Tensor]) -> torch.Tensor:
        """The inverse of `blocks`: (tokens, width), or (rows, width) from blocks of one token a row."""
        width = blocks[0].shape[-1]
        return torch.cat([block.reshape(self.times, -1, width) for block in blocks], dim=1).flatten(
            0, 1
        )

    def repeated(self, times: int) -> Slab:
        """The same rows several times over, one copy after the other; the same slab for the same number each time.

        What a slab computes of itself must exist before a pass over it is captured.
        """
        if times == 1:
            return self
        return self._copies.setdefault(times, Slab(self.lengths * times, self.device, times))


def cut_rows(lengths: Sequence[int], tokens_per_slab: int) -> list[list[int]]:
    """Row indices, longest first, cut into slabs of at most so many tokens (one row at least)."""
    slabs: list[list[int]] = []
    room = 0
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if lengths[row] > room:
            slabs.append([])
            room = max(tokens_per_slab, lengths[row])
        slabs[-1].append(row)
        room -= lengths[row]
    return slabs


def padded_inputs(
    rows: EncodedRows, indices: Sequence[int], device: torch.device
) -> dict[str, torch.Tensor]:
    """The rows as an embedding layer takes them: each tensor (rows, longest)."""
    inputs, _ = part_batch(pad_batch([rows[index] for index in indices], rows.pad_token_id))
    return {name: tensor.to(device, non_blocking=True) for name, tensor in inputs.items()}
