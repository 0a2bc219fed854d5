"""The replay memory: the last transitions of a layer's games, each a row of numbers.

It is a ring buffer: when it is full, a new transition replaces the oldest. Batches are drawn
without replacement. The legal actions of the next state are stored too, so that the target's
maximum leaves out removed units. A batch is one matrix, so that one copy moves it to a GPU;
`unpack` names its columns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from auber.search.game import Step


class Batch(NamedTuple):
    """Transitions side by side."""

    states: Tensor  # (batch, num_units)
    actions: Tensor  # (batch,), int64
    rewards: Tensor  # (batch,)
    next_states: Tensor  # (batch, num_units); zeros where done
    next_legal: Tensor  # (batch, num_units + 1), bool; all false where done
    done: Tensor  # (batch,), bool


class ReplayMemory:
    """Memory of the last `capacity` transitions of a layer with `num_units` units."""

    def __init__(self, capacity: int, num_units: int) -> None:
        self.capacity = capacity
        self._num_units = num_units
        self._rows = np.zeros((capacity, 3 * num_units + 4), dtype=np.float32)
        self._size = 0
        self._next = 0

    def __len__(self) -> int:
        return self._size

    def push(self, step: Step) -> None:
        """Store a transition."""
        row, units = self._rows[self._next], self._num_units
        row[:units] = step.state
        row[units : 2 * units] = 0.0 if step.next_state is None else step.next_state
        row[2 * units : -3] = step.next_legal
        row[-3:] = step.action, step.reward, step.done
        self._next = (self._next + 1) % self.capacity
        self._size = min(self._size + 1, self.capacity)

    def sample(self, batch_size: int, generator: np.random.Generator) -> Tensor:
        """Return different transitions, drawn uniformly, as rows; all if fewer are stored."""
        rows = generator.choice(self._size, min(batch_size, self._size), replace=False)
        return torch.from_numpy(self._rows[rows])


def unpack(rows: Tensor) -> Batch:
    """Return the columns of sampled rows by name."""
    units = (rows.shape[1] - 4) // 3
    return Batch(
        states=rows[:, :units],
        next_states=rows[:, units : 2 * units],
        next_legal=rows[:, 2 * units : -3].bool(),
        actions=rows[:, -3].long(),
        rewards=rows[:, -2],
        done=rows[:, -1].bool(),
    )
