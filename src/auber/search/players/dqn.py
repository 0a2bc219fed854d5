"""A deep Q-network that plays the pruning game of one layer, from the first episode to its plan.

As in the paper: epsilon-greedy episodes, replay memory, target network, Huber loss, clamped
gradients, updates after each episode, and a new agent for each layer. Where the paper is silent,
`config.Agent` declares the setting and `config.PRESETS` names the source of its value. Ours: an
illegal action is never chosen, neither by the policy, nor at random, nor in the target's maximum.

`Learner.q_targets` computes the Q-learning target. `DQNAgent` adds memory and exploration, and
`play_layer` plays all episodes.

The same seed and layer give the same play, bit for bit, on the same type of device: all random
numbers derive from (seed, purpose, layer), torch's global generator is not used, and on a CPU the
agent computes on one thread, which at this size is also faster. On a GPU kernel launches dominate
the time of these small networks, so their computations are captured as CUDA graphs; the results are
the same.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from auber.config import Agent
from auber.errors import ConfigError
from auber.search.game import BoolArray, FloatArray, PruningGame, Step
from auber.search.methods import Mask, score_curve
from auber.search.players.replay import Batch, ReplayMemory, unpack
from auber.system import seeds
from auber.training.cuda_graphs import Capture, Computation, capture_for


@dataclass(frozen=True)
class LayerOutcome:
    """The result of playing a layer. Scores are the metric, not points."""

    removed: Mask  # the layer's plan: `rollout` or `best`, by the setting `agent.choose`
    rollout: Mask  # the greedy play of the learned policy
    rollout_score: float
    best: Mask  # the scored mask with the largest objective
    best_score: float
    prior_score: float  # of the prior; without one, of the unpruned layer
    updates: int  # of the networks' weights; 0: the roll-out follows the initial weights
    rewards_asked: int  # requests for a metric, including masks already known
    rewards_computed: int  # different masks scored, including the first
    q_values: tuple[float, ...]  # of the initial state at the end: one per unit, then stopping
    curve: tuple[tuple[int, float], ...]  # (masks scored, best score so far) at each improvement


def epsilon(config: Agent, actions_taken: int) -> float:
    """Return the share of random actions after this many actions."""
    gap = config.epsilon_start - config.epsilon_end
    return config.epsilon_end + gap * math.exp(-actions_taken / config.epsilon_decay)


def check_memory(config: Agent) -> None:
    """Raise `ConfigError` if the memory is too small for learning to start."""
    if config.replay_size < config.learning_starts:
        raise ConfigError(
            f"agent.replay_size must be at least agent.learning_starts ({config.learning_starts}), "
            f"found {config.replay_size}: no update would ever be made"
        )


def check_games(config: Agent, num_heads: int, layer: int, *, has_prior: bool) -> None:
    """Raise `ConfigError` if the roll-out decides and the games are too few for a single update.

    A game changes each head at most once and then stops. The last head can only be removed after
    another was put back (`has_prior`).
    """
    most = config.episodes * (num_heads + has_prior)
    if config.choose == "rollout" and most < config.learning_starts:
        raise ConfigError(
            f"layer {layer}: agent.episodes must be high enough for the agent to learn, "
            f"found {config.episodes}: its games on {num_heads} heads make {most} moves at most, "
            f"and the first update waits for {config.learning_starts}; raise it, lower "
            "agent.learning_starts, or let agent.choose=best decide"
        )


class QNetwork(nn.Module):
    """State to action values: n -> hidden ... hidden -> n + 1, with LeakyReLU in between."""

    def __init__(self, num_units: int, config: Agent, seed: int) -> None:
        super().__init__()
        sizes = [num_units, *[config.hidden_size] * config.hidden_layers, num_units + 1]
        self.input_scale = float(num_units) if config.scale_state else 1.0
        generator = torch.Generator().manual_seed(seed)
        self.layers = nn.ModuleList(
            _make_linear(size, next_size, generator) for size, next_size in pairwise(sizes)
        )

    def forward(self, states: Tensor) -> Tensor:
        """(batch, num_units) -> (batch, num_units + 1)."""
        values = states * self.input_scale
        for layer in self.layers[:-1]:
            values = F.leaky_relu(layer(values))
        output: Tensor = self.layers[-1](values)
        return output


class Learner:
    """The policy and target network of an agent; `capture` is given on a GPU."""

    def __init__(
        self,
        num_units: int,
        config: Agent,
        seed: int,
        device: torch.device,
        capture: Capture | None,
    ) -> None:
        self._config = config
        self._stop = num_units
        self.policy = QNetwork(num_units, config, seed).to(device)
        self.target = QNetwork(num_units, config, seed).to(device).requires_grad_(False)
        self._parameters = list(self.policy.parameters())
        self._optimizer = _make_optimizer(self._parameters, config, device)
        self.values = _CapturedFunction(self._compute_values, device, capture)
        self.update = _CapturedFunction(self._compute_update, device, capture)

    def copy_to_target(self) -> None:
        """Copy the policy network's weights to the target network."""
        self.target.load_state_dict(self.policy.state_dict())

    def q_targets(self, batch: Batch) -> Tensor:
        """Return the Q-learning target of each transition: (batch,).

        The target is the reward plus the discounted value of the best legal next action.
        """
        config = self._config
        with torch.no_grad():
            next_values = self._values(self.target, batch.next_states)  # (batch, num_units + 1)
            # Double Q-learning: the policy network chooses the action, the target network rates it.
            ranking = (
                self._values(self.policy, batch.next_states) if config.double_q else next_values
            )
            legal = ranking.masked_fill(~batch.next_legal, -math.inf)
            best = legal.argmax(dim=1, keepdim=True)  # (batch, 1)
            future = next_values.gather(1, best).squeeze(1).masked_fill(batch.done, 0.0)
            targets = batch.rewards + config.gamma * future
            if config.stop_value is not None:
                # A fixed value is its own target, so that nothing is learned from a stop.
                targets = targets.masked_fill(batch.actions == self._stop, config.stop_value)
        return targets

    @torch.no_grad()
    def _compute_values(self, states: Tensor) -> Tensor:
        """Return the policy network's value of each action, in points.

        (batch, num_units) -> (batch, num_units + 1)
        """
        return self._values(self.policy, states)

    def _compute_update(self, rows: Tensor) -> Tensor:
        """Take one optimiser step on rows of the replay memory; return the loss, on the device."""
        batch = unpack(rows)
        values = self._values(self.policy, batch.states)  # (batch, num_units + 1)
        taken = values.gather(1, batch.actions[:, None]).squeeze(1)  # (batch,)
        loss = F.huber_loss(taken, self.q_targets(batch))
        most = self._config.gradient_clamp
        gradients = torch.autograd.grad(loss, self._parameters)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient.clamp_(-most, most)
        self._optimizer.step()
        return loss.detach()

    def _values(self, network: QNetwork, states: Tensor) -> Tensor:
        """Return a network's values, with the value of stopping replaced if it is fixed."""
        values: Tensor = network(states)
        if self._config.stop_value is None:
            return values
        stop = torch.full_like(values[:, self._stop :], self._config.stop_value)
        return torch.cat([values[:, : self._stop], stop], dim=1)


class DQNAgent:
    """Networks, replay memory and exploration of the player of one layer."""

    def __init__(
        self,
        num_units: int,
        config: Agent,
        *,
        seed: int,
        layer: int,
        device: torch.device | str = "cpu",
    ) -> None:
        check_memory(config)
        device = torch.device(device)
        self.config = config
        weights_seed = seeds.derive(seed, "agent", layer)
        with _one_thread():
            self.learner = Learner(num_units, config, weights_seed, device, capture_for(device))
        self.memory = ReplayMemory(config.replay_size, num_units)
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
        """Return the epsilon-greedy action. A forced action does not count as taken."""
        choices = np.flatnonzero(legal)
        if len(choices) == 1:
            return int(choices[0])
        explore = self._exploration.random() < self.epsilon
        self.actions_taken += 1
        return int(self._exploration.choice(choices)) if explore else self.greedy(state, legal)

    def greedy(self, state: FloatArray, legal: BoolArray) -> int:
        """Return the legal action with the highest value; the first among equals."""
        return int(np.where(legal, self.q_values(state), -np.inf).argmax())

    def q_values(self, state: FloatArray) -> NDArray[np.float32]:
        """Return the value of each action, legal or not, in points: (num_units + 1,)."""
        with _one_thread():
            values = self.learner.values(torch.tensor(state)[None])[0]
            found: NDArray[np.float32] = values.cpu().numpy()
        return found

    def remember(self, step: Step) -> None:
        """Store a transition."""
        self.memory.push(step)

    def finish_episode(self) -> float | None:
        """Learn from the memory and copy the target network when due.

        Return the mean loss, None without an update.
        """
        self.episodes_played += 1
        losses: list[Tensor] = []
        with _one_thread():
            if len(self.memory) >= self.config.learning_starts:
                for _ in range(self.config.updates_per_episode):
                    rows = self.memory.sample(self.config.batch_size, self._sampling)
                    losses.append(self.learner.update(rows))
                self.updates_made += len(losses)
            if self.episodes_played % self.config.target_every == 0:
                self.learner.copy_to_target()
        return float(torch.stack(losses).mean()) if losses else None


def play_layer(
    game: PruningGame,
    config: Agent,
    *,
    seed: int,
    layer: int,
    on_episode: Callable[[int, dict[str, float]], None] | None = None,
    device: torch.device | str = "cpu",
) -> LayerOutcome:
    """Play all episodes of a new game with a new agent, and return which units should go.

    `on_episode` gets the number of each episode, from 1, and named numbers.
    """
    agent = DQNAgent(game.num_units, config, seed=seed, layer=layer, device=device)
    prior_score = game.metric(game.prior)
    best = game.prior
    for episode in range(1, config.episodes + 1):
        state: FloatArray | None = game.reset()
        episode_return = 0.0
        while state is not None:
            step = game.step(agent.act(state, game.legal_actions()))
            agent.remember(step)
            episode_return += step.reward
            best = max(best, game.removed, key=game.objective)
            state = step.next_state
        loss = agent.finish_episode()
        if on_episode is not None:
            numbers = {
                "best_score": game.metric(best),
                "return": episode_return,
                "epsilon": agent.epsilon,
                "rewards_asked": game.rewards_asked,
                "rewards_computed": game.rewards_computed,
            }
            on_episode(episode, numbers if loss is None else {**numbers, "loss": loss})
    rollout = _roll_out(game, agent)
    rollout_score = game.metric(rollout)
    best = game.best_mask()
    return LayerOutcome(
        removed=rollout if config.choose == "rollout" else best,
        rollout=rollout,
        rollout_score=rollout_score,
        best=best,
        best_score=game.scores[best],
        prior_score=prior_score,
        updates=agent.updates_made,
        rewards_asked=game.rewards_asked,
        rewards_computed=game.rewards_computed,
        q_values=tuple(agent.q_values(game.initial_state).tolist()),
        curve=tuple(score_curve(game.scores.values())),
    )


def _roll_out(game: PruningGame, agent: DQNAgent) -> Mask:
    """Return the mask of an episode without exploration."""
    state: FloatArray | None = game.reset()
    while state is not None:
        state = game.step(agent.greedy(state, game.legal_actions())).next_state
    return game.removed


class _CapturedFunction:
    """A function of one tensor, computed on a device, on a GPU by replaying a CUDA graph.

    The first call with each shape runs as it is, because libraries and optimisers set themselves up
    on first use. The second is captured, and from then on the graph is replayed.
    """

    def __init__(
        self, function: Callable[[Tensor], Tensor], device: torch.device, capture: Capture | None
    ) -> None:
        self._function, self._device, self._capture = function, device, capture
        self._seen: set[torch.Size] = set()
        self._graphs: dict[torch.Size, tuple[Tensor, list[Tensor], Computation]] = {}

    def __call__(self, given: Tensor) -> Tensor:
        """Return the function's result for a tensor on the host."""
        if self._capture is None or given.shape not in self._seen:
            self._seen.add(given.shape)
            return self._function(given.to(self._device))
        if given.shape not in self._graphs:
            buffer = given.to(self._device, copy=True)  # the caller's tensor is not overwritten
            self._graphs[given.shape] = self._make_graph(buffer, self._capture)
        buffer, results, replay = self._graphs[given.shape]
        buffer.copy_(given)
        replay()
        return results[-1].clone()  # the next replay overwrites the result

    def _make_graph(
        self, buffer: Tensor, capture: Capture
    ) -> tuple[Tensor, list[Tensor], Computation]:
        results: list[Tensor] = []
        return buffer, results, capture(lambda: results.append(self._function(buffer)))


def _make_linear(size: int, next_size: int, generator: torch.Generator) -> nn.Linear:
    """Return a linear layer with torch's default initialisation, drawn by the given generator.

    The constructor of `nn.Linear` would draw from the global generator.
    """
    linear = nn.Linear(size, next_size, device="meta").to_empty(device="cpu")
    bound = 1 / math.sqrt(size)
    nn.init.uniform_(linear.weight, -bound, bound, generator=generator)
    nn.init.uniform_(linear.bias, -bound, bound, generator=generator)
    return linear


def _make_optimizer(
    parameters: list[nn.Parameter], config: Agent, device: torch.device
) -> torch.optim.Optimizer:
    # fused: one kernel over all parameters, a third of the time of a loop over them on a CPU
    if config.optimizer == "adam":
        # capturable: a CUDA graph needs the step count on the device
        capturable = device.type == "cuda"
        rate = config.learning_rate
        return torch.optim.Adam(parameters, lr=rate, fused=True, capturable=capturable)
    return torch.optim.SGD(
        parameters, lr=config.learning_rate, momentum=config.momentum, fused=True
    )


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use one CPU thread inside the context."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
