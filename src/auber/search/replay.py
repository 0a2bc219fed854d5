"""The replay memory: the last transitions of a layer's games, in preallocated tensors.

A ring: when it is full, the oldest transition makes room. Batches are drawn without replacement by a generator that is
handed in. The legal actions of the next state are stored too, so that the target's maximum never counts a removed head.
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

    def __init__(self, capacity: int, num_heads: int, device: torch.device | str = "cpu") -> None:
        self.capacity = capacity
        self._size = 0
        self._next = 0
        self._columns = Batch(
            states=torch.zeros(capacity, num_heads, device=device),
            actions=torch.zeros(capacity, dtype=torch.int64, device=device),
            rewards=torch.zeros(capacity, device=device),
            next_states=torch.zeros(capacity, num_heads, device=device),
            next_legal=torch.zeros(capacity, num_heads + 1, dtype=torch.bool, device=device),
            done=torch.zeros(capacity, dtype=torch.bool, device=device),
        )

    def __len__(self) -> int:
        return self._size

    def push(self, step: Step) -> None:
        """Store a transition, in place of the oldest if there is no room."""
        row, columns = self._next, self._columns
        columns.states[row] = torch.tensor(step.state)
        columns.actions[row] = step.action
        columns.rewards[row] = step.reward
        columns.next_states[row] = 0.0 if step.next_state is None else torch.tensor(step.next_state)
        columns.next_legal[row] = torch.tensor(step.next_legal)
        columns.done[row] = step.done
        self._next = (row + 1) % self.capacity
        self._size = min(self._size + 1, self.capacity)

    def sample(self, batch_size: int, generator: np.random.Generator) -> Batch:
        """`batch_size` different transitions, uniformly; all of them while fewer are stored."""
        rows = generator.choice(self._size, min(batch_size, self._size), replace=False)
        index = torch.from_numpy(rows).to(self._columns.actions.device)
        return Batch(*(column[index] for column in self._columns))
