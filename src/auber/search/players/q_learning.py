"""The agent's networks: the values of states, and the updates that improve them.

As in the paper: a policy and a target network, Huber loss, clamped gradients. Ours alone: actions that are not legal stay out
of the target's maximum.

The networks are small and asked often, one state or one batch at a time. On a GPU that is all launches, so both the values
and the update are recorded at their second call and replayed from then on; what they compute is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from auber.config import Agent
from auber.search.players.replay import Batch, unpack
from auber.training.cuda_graphs import Recorder, Work


class QNetwork(nn.Module):
    """State to action values: H -> hidden ... hidden -> H + 1, LeakyReLU between."""

    def __init__(self, num_heads: int, config: Agent, seed: int) -> None:
        super().__init__()
        sizes = [num_heads, *[config.hidden_size] * config.hidden_layers, num_heads + 1]
        self.input_scale = float(num_heads) if config.scale_state else 1.0
        generator = torch.Generator().manual_seed(seed)
        self.layers = nn.ModuleList(
            _make_linear(size, next_size, generator) for size, next_size in pairwise(sizes)
        )

    def forward(self, states: Tensor) -> Tensor:
        """(batch, num_heads) -> (batch, num_heads + 1)."""
        values = states * self.input_scale
        for layer in self.layers[:-1]:
            values = F.leaky_relu(layer(values))
        output: Tensor = self.layers[-1](values)
        return output


class Learner:
    """Policy and target network of one layer's agent on one device; `recorder` is given where that is a GPU."""

    def __init__(
        self,
        num_heads: int,
        config: Agent,
        seed: int,
        device: torch.device,
        recorder: Recorder | None,
    ) -> None:
        self._config = config
        self._stop = num_heads
        self.policy = QNetwork(num_heads, config, seed).to(device)
        self.target = QNetwork(num_heads, config, seed).to(device).requires_grad_(False)
        self._parameters = list(self.policy.parameters())
        self._optimizer = _make_optimizer(self._parameters, config, device)
        self._replayed_values = _Replayed(self._policy_values, device, recorder)
        self._replayed_update = _Replayed(self._update, device, recorder)

    def values(self, states: Tensor) -> Tensor:
        """What the policy network gives each action, in points; (batch, num_heads) -> (batch, num_heads + 1)."""
        return self._replayed_values(states)

    def update(self, rows: Tensor) -> Tensor:
        """One step of the optimiser on rows of the replay memory; the loss, on the device."""
        return self._replayed_update(rows)

    def copy_to_target(self) -> None:
        """Let the target network be what the policy network is now."""
        self.target.load_state_dict(self.policy.state_dict())

    def targets(self, batch: Batch) -> Tensor:
        """What the value of each action taken should be: reward plus the discounted best legal value after it; (batch,)."""
        config = self._config
        with torch.no_grad():
            next_values = self._values(self.target, batch.next_states)  # (batch, num_heads + 1)
            ranking = (
                self._values(self.policy, batch.next_states) if config.double_q else next_values
            )
            best = ranking.masked_fill(~batch.next_legal, -math.inf).argmax(
                dim=1, keepdim=True
            )  # (batch, 1)
            future = next_values.gather(1, best).squeeze(1).masked_fill(batch.done, 0.0)
            targets = batch.rewards + config.gamma * future
            if config.stop_value is not None:
                # a fixed value is its own target: nothing is learned from a stop
                targets = targets.masked_fill(batch.actions == self._stop, config.stop_value)
        return targets

    @torch.no_grad()
    def _policy_values(self, states: Tensor) -> Tensor:
        return self._values(self.policy, states)

    def _update(self, rows: Tensor) -> Tensor:
        batch = unpack(rows)
        taken = (
            self._values(self.policy, batch.states).gather(1, batch.actions[:, None]).squeeze(1)
        )  # (batch,)
        loss = F.huber_loss(taken, self.targets(batch))
        most = self._config.gradient_clamp
        for parameter, gradient in zip(
            self._parameters, torch.autograd.grad(loss, self._parameters), strict=True
        ):
            parameter.grad = gradient.clamp_(-most, most)
        self._optimizer.step()
        return loss.detach()

    def _values(self, network: QNetwork, states: Tensor) -> Tensor:
        """(batch, num_heads) -> (batch, num_heads + 1), the value of stopping replaced where it is fixed."""
        values: Tensor = network(states)
        if self._config.stop_value is None:
            return values
        return torch.cat(
            [
                values[:, : self._stop],
                torch.full_like(values[:, self._stop :], self._config.stop_value),
            ],
            dim=1,
        )


class _Replayed:
    """A function of one tensor that is computed on a device; with a recorder, by replay from the second call of a shape on.

    The first call of a shape runs as it is: libraries set themselves up, and optimisers make their state, on first use.
    """

    def __init__(
        self, function: Callable[[Tensor], Tensor], device: torch.device, recorder: Recorder | None
    ) -> None:
        self._function, self._device, self._recorder = function, device, recorder
        self._seen: set[torch.Size] = set()
        self._recordings: dict[torch.Size, tuple[Tensor, list[Tensor], Work]] = {}

    def __call__(self, given: Tensor) -> Tensor:
        """What the function gives for a tensor on the host."""
        if self._recorder is None or given.shape not in self._seen:
            self._seen.add(given.shape)
            return self._function(given.to(self._device))
        if given.shape not in self._recordings:
            self._recordings[given.shape] = self._record(given, self._recorder)
        buffer, results, replay = self._recordings[given.shape]
        buffer.copy_(given)
        replay()
        return results[-1].clone()  # the next replay writes over it

    def _record(self, given: Tensor, recorder: Recorder) -> tuple[Tensor, list[Tensor], Work]:
        buffer = given.to(self._device, copy=True)  # the caller keeps its own
        results: list[Tensor] = []
        return buffer, results, recorder(lambda: results.append(self._function(buffer)))


def _make_linear(size: int, next_size: int, generator: torch.Generator) -> nn.Linear:
    """A linear layer with torch's default start, drawn by a generator of ours: its constructor would use the global one."""
    linear = nn.Linear(size, next_size, device="meta").to_empty(device="cpu")
    bound = 1 / math.sqrt(size)
    nn.init.uniform_(linear.weight, -bound, bound, generator=generator)
    nn.init.uniform_(linear.bias, -bound, bound, generator=generator)
    return linear


def _make_optimizer(
    parameters: list[nn.Parameter], config: Agent, device: torch.device
) -> torch.optim.Optimizer:
    # fused: one kernel over all parameters, a third of the time of the loop over them on a CPU
    if config.optimizer == "adam":
        on_gpu = (
            device.type == "cuda"
        )  # where the count of steps must be on the device to be recorded
        return torch.optim.Adam(parameters, lr=config.learning_rate, fused=True, capturable=on_gpu)
    return torch.optim.SGD(
        parameters, lr=config.learning_rate, momentum=config.momentum, fused=True
    )
