"""The deep Q-network that plays a layer's pruning game, and the play of one layer from the first episode to its plan.

As in the paper: epsilon-greedy episodes, a replay memory, a target network, updates after each episode, a new agent for
each layer. Where the paper is silent, `config.Agent` says what is done and `config.PRESETS` whose choice it is. Ours alone:
a removed head is never chosen again, neither by the policy, nor at random, nor in the target's maximum; the legal actions
are handed in with each state and all others are out of the question.

The same seed and layer give the same play to the last bit on the same kind of device: every random draw comes from generators
derived of (seed, purpose, layer), torch's global generator is left alone, and on a CPU the agent's arithmetic runs on one thread
whatever the scorer around it uses (more threads change the last bits, and cost more than they save at this size).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from auber.config import Agent
from auber.errors import ConfigError
from auber.search.game import BoolArray, FloatArray, Mask, PruningGame, Step
from auber.search.players.q_learning import Learner
from auber.search.players.replay import ReplayMemory
from auber.system import seeds
from auber.training.cuda_graphs import recorder_for


@dataclass(frozen=True)
class EpisodeInfo:
    """What a finished episode tells a progress bar or a log."""

    episode: int  # from 1
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
    best: Mask  # the mask scored that is worth most; among equals the one that departs least from what is given, then the first scored
    best_score: float
    given_score: float  # of what it began with; in the paper, and where no plan is given, the unpruned layer's
    updates: int  # of the networks' weights; 0: the roll-out is what they were drawn to play
    rewards_asked: int  # requests for a metric, known ones included
    rewards_computed: int  # different masks scored, the one it began with included
    q_values: tuple[float, ...]  # of the initial state at the end: one per head, then stopping
    curve: tuple[
        tuple[int, float], ...
    ]  # (rewards computed, best score so far) at each improvement


def epsilon(config: Agent, actions_taken: int) -> float:
    """The share of random actions after so many actions chosen."""
    gap = config.epsilon_start - config.epsilon_end
    return config.epsilon_end + gap * math.exp(-actions_taken / config.epsilon_decay)


def check_memory(config: Agent) -> None:
    """Raise `ConfigError` where so little is remembered that nothing would ever be learned."""
    if config.replay_size < config.learning_starts:
        raise ConfigError(
            f"agent.replay_size must be at least agent.learning_starts ({config.learning_starts}), "
            f"found {config.replay_size}: no update would ever be made"
        )


def check_games(config: Agent, num_heads: int, layer: int, *, has_given: bool) -> None:
    """Raise `ConfigError` where even the longest games of a layer are too few for one update, and the roll-out would be the plan.

    A game changes each head once at most and then stops; the last head may only go where another has come back (`has_given`).
    """
    most = config.episodes * (num_heads + has_given)
    if config.choose == "rollout" and most < config.learning_starts:
        raise ConfigError(
            f"layer {layer}: agent.episodes must be so many that the agent learns, found {config.episodes}: its games on {num_heads} "
            f"heads make {most} moves at most, and the first update waits for {config.learning_starts}; raise it, lower "
            "agent.learning_starts, or let agent.choose=best decide"
        )


class DQNAgent:
    """Networks, replay memory and exploration of one layer's player."""

    def __init__(
        self,
        num_heads: int,
        config: Agent,
        *,
        seed: int,
        layer: int,
        device: torch.device | str = "cpu",
    ) -> None:
        check_memory(config)
        device = torch.device(device)
        self.config = config
        with _one_thread():
            self.learner = Learner(
                num_heads, config, seeds.derive(seed, "agent", layer), device, recorder_for(device)
            )
        self.memory = ReplayMemory(config.replay_size, num_heads)
        self.actions_taken = 0
        self.episodes_played = 0
        self.updates_made = 0
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
        with _one_thread():
            values: NDArray[np.float32] = (
                self.learner.values(torch.tensor(state)[None])[0].cpu().numpy()
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
                self.updates_made += len(losses)
            if self.episodes_played % self.config.target_every == 0:
                self.learner.copy_to_target()
        return float(torch.stack(losses).mean()) if losses else None

    def _update(self) -> Tensor:
        return self.learner.update(self.memory.sample(self.config.batch_size, self._sampling))


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
    given_score = game.metric(game.given)
    best = game.given
    for episode in range(1, config.episodes + 1):
        state: FloatArray | None = game.reset()
        episode_return = 0.0
        while state is not None:
            step = game.step(agent.act(state, game.legal_actions()))
            agent.remember(step)
            episode_return += step.reward
            best = max(best, game.removed, key=game.worth)
            state = step.next_state
        loss = agent.finish_episode()
        if on_episode is not None:
            on_episode(
                EpisodeInfo(
                    episode,
                    agent.epsilon,
                    episode_return,
                    game.metric(best),
                    game.rewards_computed,
                    loss,
                )
            )
    rollout = _roll_out(game, agent)
    rollout_score = game.metric(rollout)
    best = _best_mask(game)
    return LayerOutcome(
        removed=rollout if config.choose == "rollout" else best,
        rollout=rollout,
        rollout_score=rollout_score,
        best=best,
        best_score=game.scores[best],
        given_score=given_score,
        updates=agent.updates_made,
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


def _best_mask(game: PruningGame) -> Mask:
    """What is worth most; among equals the fewest departures (each must gain something), then the first scored."""
    return max(game.scores, key=lambda mask: (game.worth(mask), -len(game.departures(mask))))


def _curve(scores: Mapping[Mask, float]) -> tuple[tuple[int, float], ...]:
    """(masks scored, best score so far) at each improvement."""
    curve: list[tuple[int, float]] = []
    for count, score in enumerate(scores.values(), start=1):
        if not curve or score > curve[-1][1]:
            curve.append((count, score))
    return tuple(curve)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Torch on one CPU thread inside, as before outside; two calls of some 2 microseconds each, no pool is started."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
