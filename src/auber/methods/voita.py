"""Voita et al. (2019): a random gate on each head, trained to close where the task can do without the head.

The gates are hard-concrete (Louizos, Welling and Kingma 2018): a stretched binary concrete variable cut to [0, 1], so
that it is exactly 0 or 1 with some probability and still has a gradient. They are trained with the task's loss plus
`penalty` times the expected number of open gates. The penalty is searched until about as many gates close as heads are to
go; the gates' locations then decide: the lowest go, and one head stays in each layer.

Ours: the weights stay as they are and only the gates learn, so that this method gets no tuning that the others do not get
(Voita et al. train both); dropout is off; each row draws gates of its own, which makes the gradient less noisy; the draws
are the same for every penalty, which makes the number of closed gates a smoother function of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from auber.methods.base import Method, RankingChoice, RankingWork
from auber.methods.ranking import remove_lowest, scores_to_json

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

_START_LOCATION = 2.0  # all gates begin open: with the usual shape 97 % of the draws are above 0
_START_PENALTY = 0.01
_PENALTY_FACTOR = 10.0  # between two penalties until the number wanted lies between theirs
_CLOSE_ENOUGH = 0.02  # of all heads: the search ends when closed gates and heads to remove differ by no more


@dataclass(frozen=True)
class HardConcrete:
    """The distribution of a gate around a location (the logarithm of alpha in the papers)."""

    temperature: float
    stretch: float  # the concrete variable is stretched to [-stretch, 1 + stretch] before it is cut

    def draw(self, location: Tensor, uniform: Tensor) -> Tensor:
        """Gates in [0, 1] from uniform numbers in [0, 1); differentiable by the location."""
        return self._cut(((location + uniform.logit(eps=1e-6)) / self.temperature).sigmoid())

    def value(self, location: Tensor) -> Tensor:
        """The gates without their randomness: 0 is closed."""
        return self._cut(location.sigmoid())

    def open_probability(self, location: Tensor) -> Tensor:
        """The probability that a gate drawn is not 0."""
        return (location - self.temperature * math.log(self.stretch / (1 + self.stretch))).sigmoid()

    def _cut(self, concrete: Tensor) -> Tensor:
        return (concrete * (1 + 2 * self.stretch) - self.stretch).clamp(0.0, 1.0)


@dataclass(frozen=True)
class Trial:
    """What the gates came to under one penalty."""

    penalty: float
    closed: int
    expected_open: float
    loss: float  # the task's, mean over the last epoch, gates drawn
    locations: tuple[float, ...]  # of all gates, layer by layer

    def to_json(self) -> dict[str, Any]:
        """The trace of the search, without the gates."""
        return {
            "penalty": self.penalty,
            "closed": self.closed,
            "expected_open": self.expected_open,
            "loss": self.loss,
        }


def choose_plan(work: RankingWork) -> RankingChoice:
    """Search the penalty that closes about as many gates as heads are to go, and remove the lowest gates."""
    from auber.encoders import encoder_of
    from auber.methods.passes import frozen_copy, present_heads

    model = frozen_copy(work)
    heads = present_heads(encoder_of(model))
    settings = work.config.voita
    steps = settings.epochs * math.ceil(len(work.rows) / settings.batch_size)
    work.progress.begin("training gates", settings.trials * steps)
    trials: list[Trial] = []

    def train(penalty: float) -> Trial:
        begun = len(trials) * steps
        trial = train_gates(work, model, heads, penalty, lambda step: work.progress.step(begun + step, _note(trials)))
        trials.append(trial)
        return trial

    chosen = search_penalty(train, work.num_removed, sum(map(len, heads.values())), settings.trials)
    work.progress.end()
    locations = iter(chosen.locations)
    scores = {layer: {head: next(locations) for head in present} for layer, present in heads.items()}
    details = {
        "gates": scores_to_json(scores),
        "penalty": chosen.penalty,
        "trials": [trial.to_json() for trial in trials],
        "gate_steps": len(trials) * steps,
    }
    return RankingChoice(remove_lowest(scores, work.num_removed), details)


def _note(trials: list[Trial]) -> str:
    """The last trial in a few words."""
    return f"penalty {trials[-1].penalty:.2g} closed {trials[-1].closed}" if trials else ""


def search_penalty(train: Callable[[float], Trial], num_closed: int, num_gates: int, most_trials: int) -> Trial:
    """The trial that closes most nearly `num_closed` gates: steps by a factor at first, then bisection of logarithms."""
    penalty, too_low, too_high = _START_PENALTY, 0.0, math.inf
    best: Trial | None = None
    for _ in range(most_trials):
        trial = train(penalty)
        if best is None or abs(trial.closed - num_closed) < abs(best.closed - num_closed):
            best = trial
        if abs(trial.closed - num_closed) <= _CLOSE_ENOUGH * num_gates:
            break
        if trial.closed < num_closed:
            too_low = penalty
        else:
            too_high = penalty
        if too_high == math.inf:
            penalty *= _PENALTY_FACTOR
        elif too_low == 0.0:
            penalty /= _PENALTY_FACTOR
        else:
            penalty = math.sqrt(too_low * too_high)
    assert best is not None, "voita.trials is at least 1"
    return best


def train_gates(
    work: RankingWork,
    model: PreTrainedModel,
    heads: dict[int, tuple[int, ...]],
    penalty: float,
    on_step: Callable[[int], None],
) -> Trial:
    """Train the gates of a model that stays as it is."""
    import torch

    from auber import seeds
    from auber.methods.passes import row_losses
    from auber.surgery import gated_heads
    from auber.tasks.encoding import part_batch
    from auber.tuning.batches import LengthGroups, RowCollator

    config, device, rows = work.config, work.hardware.device, work.rows
    settings = config.voita
    law = HardConcrete(settings.temperature, settings.stretch)
    sizes = [len(present) for present in heads.values()]
    location = torch.full((sum(sizes),), _START_LOCATION, device=device, requires_grad=True)  # (gates,)
    optimizer = torch.optim.Adam([location], lr=settings.learning_rate)
    # drawn on the CPU: the same numbers whatever the device
    generator = torch.Generator().manual_seed(seeds.derive(config.seed, "voita/gates"))
    order = LengthGroups(rows.lengths, settings.batch_size, seeds.derive(config.seed, "voita/rows"))
    collate = RowCollator(rows)
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=work.hardware.precision == "bfloat16")
    step = 0
    for epoch in range(settings.epochs):
        order.set_epoch(epoch)
        numbers = list(order)
        losses: list[Tensor] = []
        for start in range(0, len(numbers), settings.batch_size):
            batch = collate(numbers[start : start + settings.batch_size])
            inputs, targets = part_batch({name: tensor.to(device) for name, tensor in batch.items()})
            uniform = torch.rand(len(inputs["input_ids"]), len(location), generator=generator).to(device)
            gates = torch.split_with_sizes(law.draw(location, uniform), sizes, dim=1)  # (rows, present_heads) a layer
            with gated_heads(model, dict(zip(heads, gates, strict=True))), autocast:
                task_losses = row_losses(model, rows.kind, inputs, targets)
            loss = task_losses.mean() + penalty * law.open_probability(location).sum()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(task_losses.detach())
            step += 1
            on_step(step)
    found = location.detach().cpu()
    return Trial(
        penalty=penalty,
        closed=int((law.value(found) == 0).sum()),
        expected_open=float(law.open_probability(found).sum()),
        loss=float(torch.cat(losses).mean()),
        locations=tuple(found.tolist()),
    )


METHODS = (
    Method("voita", "gates trained with a penalty on open ones; the heads of the lowest go", choose_plan=choose_plan),
)
