"""The deep Q-network that plays a layer's pruning game, and the play of one layer from the first episode to its plan.

As in the paper: epsilon-greedy episodes, a replay memory, a target network, updates after each episode, a new agent for
each layer. Where the paper is silent, `config.Agent` says what is done and `config.PRESETS` whose choice it is. Ours alone:
a removed head is never chosen again, neither by the policy, nor at random, nor in the target's maximum; the legal actions
are handed in with each state and all others are out of the question.

The same seed and layer give the same play to the last bit: every random draw comes from generators derived of (seed,
purpose, layer), torch's global generator is left alone, and the agent's arithmetic runs on one CPU thread whatever the
scorer around it uses (more threads change the last bits, and cost more than they save at this size).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from auber import seeds
from auber.config import Agent
from auber.errors import ConfigError
from auber.search.game import BoolArray, FloatArray, Mask, PruningGame, Step
from auber.search.replay import Batch, ReplayMemory


@dataclass(frozen=True)
class EpisodeInfo:
    """What a finished episode tells a progress bar or a log."""

    episode: int  # from 1
    actions: int  # chosen so far in this layer, forced stops not counted
    epsilon: float  # the share of random actions now
    episode_return: float  # sum of the episode's rewards
    best_score: float
    rewards_computed: int
    loss: float | None  # mean over the episode's updates; None: there was none


@dataclass(frozen=True)
class LayerOutcome:
    """What came out of playing a layer. Scores are the metric, not points."""

    removed: Mask  # the layer's plan: `rollout` or `best`, as `agent.choose` says
    rollout: Mask  # the greedy play of the learned policy
    rollout_score: float
    best: Mask  # the best mask scored; among equals the one that removes fewest heads, then the first scored
    best_score: float
    unpruned_score: float
    episodes: int
    actions: int  # chosen by the agent, forced stops and the roll-out not counted
    rewards_asked: int  # requests for a metric, known ones included
    rewards_computed: int  # different masks scored, the unpruned layer included
    q_values: tuple[float, ...]  # of the initial state at the end: one per head, then stopping
    curve: tuple[tuple[int, float], ...]  # (rewards computed, best score so far) at each improvement


class QNetwork(nn.Module):
    """State to action values: H -> hidden ... hidden -> H + 1, LeakyReLU between."""

    def __init__(self, num_heads: int, config: Agent, seed: int) -> None:
        super().__init__()
        sizes = [num_heads, *[config.hidden_size] * config.hidden_layers, num_heads + 1]
        self.input_scale = float(num_heads) if config.scale_state else 1.0
        generator = torch.Generator().manual_seed(seed)
        self.layers = nn.ModuleList(_make_linear(size, next_size, generator) for size, next_size in pairwise(sizes))

    def forward(self, states: Tensor) -> Tensor:
        """(batch, num_heads) -> (batch, num_heads + 1)."""
        values = states * self.input_scale
        for layer in self.layers[:-1]:
            values = F.leaky_relu(layer(values))
        output: Tensor = self.layers[-1](values)
        return output


def _make_linear(size: int, next_size: int, generator: torch.Generator) -> nn.Linear:
    """A linear layer with torch's default start, drawn by a generator of ours: its constructor would use the global one."""
    linear = nn.Linear(size, next_size, device="meta").to_empty(device="cpu")
    bound = 1 / math.sqrt(size)
    nn.init.uniform_(linear.weight, -bound, bound, generator=generator)
    nn.init.uniform_(linear.bias, -bound, bound, generator=generator)
    return linear


def epsilon(config: Agent, actions_taken: int) -> float:
    """The share of random actions after so many actions chosen."""
    gap = config.epsilon_start - config.epsilon_end
    return config.epsilon_end + gap * math.exp(-actions_taken / config.epsilon_decay)


class DQNAgent:
    """Policy and target network, replay memory and exploration of one layer's player."""

    def __init__(
        self, num_heads: int, config: Agent, *, seed: int, layer: int, device: torch.device | str = "cpu"
    ) -> None:
        if config.replay_size < config.learning_starts:
            raise ConfigError(
                f"agent.replay_size must be at least agent.learning_starts ({config.learning_starts}), "
                f"found {config.replay_size}: no update would ever be made"
            )
        network_seed = seeds.derive(seed, "agent", layer)
        self.config = config
        self.stop = num_heads
        self.device = torch.device(device)
        with _one_thread():
            self.policy = QNetwork(num_heads, config, network_seed).to(self.device)
            self.target = QNetwork(num_heads, config, network_seed).to(self.device).requires_grad_(False)
            self.memory = ReplayMemory(config.replay_size, num_heads, self.device)
        self.actions_taken = 0
        self.episodes_played = 0
        self.updates_made = 0
        self._optimizer = _make_optimizer(self.policy, config)
        self._exploration = seeds.generator(seed, "exploration", layer)
        self._sampling = seeds.generator(seed, "replay", layer)

    @property
    def epsilon(self) -> float:
        """The share of random actions now."""
        return epsilon(self.config, self.actions_taken)

    def act(self, state: FloatArray, legal: BoolArray) -> int:
        """The epsilon-greedy action. Where only one is legal nothing is chosen, and it is not counted."""
        choices = np.flatnonzero(legal)
        if len(choices) == 1:
            return int(choices[0])
        explore = self._exploration.random() < self.epsilon
        self.actions_taken += 1
        return int(self._exploration.choice(choices)) if explore else self.greedy(state, legal)

    def greedy(self, state: FloatArray, legal: BoolArray) -> int:
        """The legal action of the highest value; the first among equals."""
        return int(np.where(legal, self.q_values(state), -np.inf).argmax())

    def q_values(self, state: FloatArray) -> NDArray[np.float32]:
        """The value of each action, legal or not, in points: (num_heads + 1,)."""
        with _one_thread(), torch.inference_mode():
            values: NDArray[np.float32] = (
                self._values(self.policy, torch.tensor(state, device=self.device)[None])[0].cpu().numpy()
            )
        return values

    def remember(self, step: Step) -> None:
        """Store a transition."""
        self.memory.push(step)

    def finish_episode(self) -> float | None:
        """Learn from the memory, and copy the target network when it is due; the mean loss, None without an update."""
        self.episodes_played += 1
        losses: list[Tensor] = []
        with _one_thread():
            if len(self.memory) >= self.config.learning_starts:
                losses = [self._update() for _ in range(self.config.updates_per_episode)]
            if self.episodes_played % self.config.target_every == 0:
                self.target.load_state_dict(self.policy.state_dict())
        return float(torch.stack(losses).mean()) if losses else None

    def targets(self, batch: Batch) -> Tensor:
        """What the value of each action taken should be: reward plus the discounted best legal value after it; (batch,)."""
        with torch.no_grad():
            next_values = self._values(self.target, batch.next_states)  # (batch, num_heads + 1)
            ranking = self._values(self.policy, batch.next_states) if self.config.double_q else next_values
            best = ranking.masked_fill(~batch.next_legal, -math.inf).argmax(dim=1, keepdim=True)  # (batch, 1)
            future = next_values.gather(1, best).squeeze(1).masked_fill(batch.done, 0.0)
            targets = batch.rewards + self.config.gamma * future
            if self.config.stop_value is not None:
                # a fixed value is its own target: nothing is learned from a stop
                targets = targets.masked_fill(batch.actions == self.stop, self.config.stop_value)
        return targets

    def _values(self, network: QNetwork, states: Tensor) -> Tensor:
        """(batch, num_heads) -> (batch, num_heads + 1), the value of stopping replaced where it is fixed."""
        values: Tensor = network(states)
        if self.config.stop_value is None:
            return values
        return torch.cat(
            [values[:, : self.stop], torch.full_like(values[:, self.stop :], self.config.stop_value)], dim=1
        )

    def _update(self) -> Tensor:
        batch = self.memory.sample(self.config.batch_size, self._sampling)
        targets = self.targets(batch)
        taken = self._values(self.policy, batch.states).gather(1, batch.actions[:, None]).squeeze(1)  # (batch,)
        loss = F.huber_loss(taken, targets)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_value_(self.policy.parameters(), self.config.gradient_clamp)
        self._optimizer.step()
        self.updates_made += 1
        return loss.detach()


def play_layer(
    game: PruningGame,
    config: Agent,
    *,
    seed: int,
    layer: int,
    on_episode: Callable[[EpisodeInfo], None] | None = None,
    device: torch.device | str = "cpu",
) -> LayerOutcome:
    """Play all episodes on a new game with a new agent, and say which heads should go."""
    agent = DQNAgent(game.num_heads, config, seed=seed, layer=layer, device=device)
    unpruned_score = best_score = game.metric(())
    for episode in range(1, config.episodes + 1):
        state: FloatArray | None = game.reset()
        episode_return = 0.0
        while state is not None:
            step = game.step(agent.act(state, game.legal_actions()))
            agent.remember(step)
            episode_return += step.reward
            best_score = max(best_score, game.metric(game.removed))
            state = step.next_state
        loss = agent.finish_episode()
        if on_episode is not None:
            on_episode(
                EpisodeInfo(
                    episode, agent.actions_taken, agent.epsilon, episode_return, best_score, game.rewards_computed, loss
                )
            )
    rollout = _roll_out(game, agent)
    rollout_score = game.metric(rollout)
    best = _best_mask(game.scores)
    return LayerOutcome(
        removed=rollout if config.choose == "rollout" else best,
        rollout=rollout,
        rollout_score=rollout_score,
        best=best,
        best_score=game.scores[best],
        unpruned_score=unpruned_score,
        episodes=config.episodes,
        actions=agent.actions_taken,
        rewards_asked=game.rewards_asked,
        rewards_computed=game.rewards_computed,
        q_values=tuple(agent.q_values(game.initial_state).tolist()),
        curve=_curve(game.scores),
    )


def _roll_out(game: PruningGame, agent: DQNAgent) -> Mask:
    """The heads that the learned policy removes when it never explores."""
    state: FloatArray | None = game.reset()
    while state is not None:
        state = game.step(agent.greedy(state, game.legal_actions())).next_state
    return game.removed


def _best_mask(scores: Mapping[Mask, float]) -> Mask:
    """The highest score; among equals the fewest heads (a removal must gain something), then the first scored."""
    return max(scores, key=lambda mask: (scores[mask], -len(mask)))


def _curve(scores: Mapping[Mask, float]) -> tuple[tuple[int, float], ...]:
    """(masks scored, best score so far) at each improvement."""
    curve: list[tuple[int, float]] = []
    for count, score in enumerate(scores.values(), start=1):
        if not curve or score > curve[-1][1]:
            curve.append((count, score))
    return tuple(curve)


def _make_optimizer(network: QNetwork, config: Agent) -> torch.optim.Optimizer:
    # fused: one kernel over all parameters, a third of the time of the loop over them on a CPU
    if config.optimizer == "adam":
        return torch.optim.Adam(network.parameters(), lr=config.learning_rate, fused=True)
    return torch.optim.SGD(network.parameters(), lr=config.learning_rate, momentum=config.momentum, fused=True)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Torch on one CPU thread inside, as before outside; two calls of some 2 microseconds each, no pool is started."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
