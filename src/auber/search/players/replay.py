"""The replay memory: the last transitions of a layer's games, one row of numbers each.

A ring: when it is full, the oldest transition makes room. Batches are drawn without replacement by a generator that is
handed in. The legal actions of the next state are stored too, so that the target's maximum never counts a removed head. A
batch is one matrix, so that it reaches a GPU in one copy; `unpack` says what its columns are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from auber.search.game import Step


class Batch(NamedTuple):
    """Transitions side by side."""

    states: Tensor  # (batch, num_heads)
    actions: Tensor  # (batch,), int64
    rewards: Tensor  # (batch,)
    next_states: Tensor  # (batch, num_heads); zeros where done
    next_legal: Tensor  # (batch, num_heads + 1), bool; all false where done
    done: Tensor  # (batch,), bool


class ReplayMemory:
    """Room for `capacity` transitions of a layer with `num_heads` heads."""

    def __init__(self, capacity: int, num_heads: int) -> None:
        self.capacity = capacity
        self._num_heads = num_heads
        self._rows = np.zeros((capacity, 3 * num_heads + 4), dtype=np.float32)
        self._size = 0
        self._next = 0

    def __len__(self) -> int:
        return self._size

    def push(self, step: Step) -> None:
        """Store a transition, in place of the oldest if there is no room."""
        row, heads = self._rows[self._next], self._num_heads
        row[:heads] = step.state
        row[heads : 2 * heads] = 0.0 if step.next_state is None else step.next_state
        row[2 * heads : -3] = step.next_legal
        row[-3:] = step.action, step.reward, step.done
        self._next = (self._next + 1) % self.capacity
        self._size = min(self._size + 1, self.capacity)

    def sample(self, batch_size: int, generator: np.random.Generator) -> Tensor:
        """`batch_size` different transitions, uniformly, as rows; all of them while fewer are stored."""
        rows = generator.choice(self._size, min(batch_size, self._size), replace=False)
        return torch.from_numpy(self._rows[rows])


def unpack(rows: Tensor) -> Batch:
    """The columns of sampled rows by their names."""
    heads = (rows.shape[1] - 4) // 3
    return Batch(
        states=rows[:, :heads],
        next_states=rows[:, heads : 2 * heads],
        next_legal=rows[:, 2 * heads : -3].bool(),
        actions=rows[:, -3].long(),
        rewards=rows[:, -2],
        done=rows[:, -1].bool(),
    )
