from __future__ import annotations

import numpy as np
import pytest
import torch

from auber.search.game import Step
from auber.search.players.replay import ReplayMemory, unpack


def transition(number: int, *, done: bool = False) -> Step:
    state = np.array([number, 0.5], dtype=np.float32)
    legal = np.array([False, not done, not done])
    return Step(state, 2 if done else 0, float(number), None if done else state + 1, legal)


def stored(memory: ReplayMemory) -> list[int]:
    batch = unpack(memory.sample(memory.capacity, np.random.default_rng(0)))
    return sorted(int(reward) for reward in batch.rewards)


def test_transitions_come_back_whole() -> None:
    memory = ReplayMemory(1, num_units=2)
    found = []
    for step in (transition(7), transition(2, done=True)):  # the second in the row of the first
        memory.push(step)
        batch = unpack(memory.sample(1, np.random.default_rng(0)))
        found.append([column.tolist()[0] for column in batch])
    assert found == [
        [[7.0, 0.5], 0, 7.0, [8.0, 1.5], [False, True, True], False],
        [[2.0, 0.5], 2, 2.0, [0.0, 0.0], [False, False, False], True],
    ]


@pytest.mark.parametrize(
    ("pushed", "kept"),
    [(4, [0, 1, 2, 3]), (5, [0, 1, 2, 3, 4]), (6, [1, 2, 3, 4, 5]), (12, [7, 8, 9, 10, 11])],
)
def test_the_oldest_goes_exactly_at_capacity(pushed: int, kept: list[int]) -> None:
    memory = ReplayMemory(5, num_units=2)
    for number in range(pushed):
        memory.push(transition(number))
    assert len(memory) == len(kept)
    assert stored(memory) == kept


def test_a_batch_has_no_transition_twice_and_is_the_generators() -> None:
    memory = ReplayMemory(50, num_units=2)
    for number in range(50):
        memory.push(transition(number))
    first, again, other = (
        unpack(memory.sample(20, np.random.default_rng(seed))).rewards for seed in (1, 1, 2)
    )
    assert len(set(first.tolist())) == 20
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
