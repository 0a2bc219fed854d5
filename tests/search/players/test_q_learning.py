"""Updates and values of the agent's networks; a recorder that repeats the work stands in for CUDA graphs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from auber.config import Agent, make_config
from auber.search.game import PruningGame
from auber.search.players.dqn import Learner, play_layer
from auber.search.players.replay import ReplayMemory
from auber.search.toy import ToyLayer
from auber.training.cuda_graphs import CudaGraphCapture
from tests.recorders import Repeater

PRESETS = ("paper", "default")


def some_rows(count: int) -> list[torch.Tensor]:
    """Batches out of random games."""
    layer, generator = ToyLayer(6, seed=3), np.random.default_rng(0)
    game, memory = PruningGame(layer.state, layer.score), ReplayMemory(400, 6)
    while len(memory) < 400:
        game.reset()
        while not game.over:
            memory.push(game.step(int(generator.choice(np.flatnonzero(game.legal_actions())))))
    return [memory.sample(128, generator) for _ in range(count)]


def learned(
    config: Agent, device: str, recorder: Repeater | CudaGraphCapture | None
) -> tuple[list[float], torch.Tensor]:
    """Losses of 20 updates with two copies to the target, and the values of a state after each."""
    learner = Learner(6, config, 1, torch.device(device), recorder)
    state = torch.full((1, 6), 1 / 6)
    losses, values = [], []
    for number, rows in enumerate(some_rows(20), 1):
        losses.append(learner.update(rows).item())
        values.append(learner.values(state)[0].cpu())
        if number % 8 == 0:
            learner.copy_to_target()
    return losses, torch.stack(values)


@pytest.mark.parametrize("preset", PRESETS)
def test_replayed_learning_is_learning(preset: str) -> None:
    config = make_config(preset).agent
    recorder = Repeater()
    losses, values = learned(config, "cpu", None)
    replayed_losses, replayed_values = learned(config, "cpu", recorder)
    assert recorder.recorded == 2  # the values of one state, and an update
    assert replayed_losses == losses
    assert torch.equal(replayed_values, values)
    assert len(set(losses)) == 20
    assert not torch.equal(values[0], values[-1])


def test_a_result_is_not_written_over_by_the_next_replay() -> None:
    learner = Learner(6, make_config("default").agent, 1, torch.device("cpu"), Repeater())
    states = torch.eye(6)
    found = [learner.values(states[number : number + 1]) for number in range(6)]
    torch.testing.assert_close(torch.cat(found), learner.values(states))


@pytest.mark.gpu
@pytest.mark.parametrize("preset", PRESETS)
def test_a_gpu_learns_what_the_cpu_learns(preset: str) -> None:
    config = make_config(preset).agent
    losses, values = learned(config, "cpu", None)
    gpu_losses, gpu_values = learned(config, "cuda", CudaGraphCapture(torch.device("cuda")))
    assert gpu_losses == pytest.approx(losses, rel=1e-2, abs=1e-4)
    torch.testing.assert_close(gpu_values, values, rtol=2e-2, atol=2e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("preset", PRESETS)
def test_play_on_a_gpu_repeats_itself(preset: str) -> None:
    layer = ToyLayer(12, seed=1)
    first, again = (
        play_layer(
            PruningGame(layer.state, layer.score),
            make_config(preset).agent,
            seed=4,
            layer=2,
            device="cuda",
        )
        for _ in range(2)
    )
    assert first == again
