"""Hard-concrete gates on the heads of a model whose weights stay as they are, trained with the task's loss.

A gate (Louizos, Welling and Kingma 2018) is a stretched binary concrete variable cut to [0, 1], so that it is exactly 0 or 1
with some probability and still has a gradient. Beside the loss it pays a penalty for the expected number of open gates. Dropout
is off; each row draws gates of its own, which makes the gradient less noisy; the draws are the same for every penalty, which makes
the number of closed gates a smoother function of it. On a GPU the steps are recorded and replayed, by all trainings alike.
"""

from __future__ import annotations

import gc
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from auber.data.encoding import part_batch
from auber.models.encoders import encoder_of
from auber.models.surgery import gated_heads
from auber.search.methods import RankingWork
from auber.search.rankings.passes import frozen_copy, present_heads, row_losses
from auber.system import seeds
from auber.training.batches import RECORDED_WIDTH, LengthGroups, RowCollator
from auber.training.cuda_graphs import Batch, Recorder, RecordingError, ShapeRecordings

logger = logging.getLogger(__name__)

_START_LOCATION = 2.0  # all gates begin open: with the usual shape 97 % of the draws are above 0
_UNIFORM = "uniform"  # what the gates of a batch are drawn from, beside the columns of its rows


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


class GateTraining:
    """Trains gates on all heads that a model has, as often as one likes; every training starts alike.

    It holds a copy of the model and, with a recorder, the memory of its steps until `close`.
    """

    def __init__(self, work: RankingWork, recorder: Recorder | None = None) -> None:
        settings, device = work.config.voita, work.hardware.device
        self._rows, self._settings, self._seed, self._device = (
            work.rows,
            settings,
            work.config.seed,
            device,
        )
        self._hardware = work.hardware
        self._model = frozen_copy(work)
        self.heads = present_heads(encoder_of(self._model))
        self._law = HardConcrete(settings.temperature, settings.stretch)
        self._collate = RowCollator(work.rows, RECORDED_WIDTH if recorder else 1)
        self._location = torch.zeros(
            sum(map(len, self.heads.values())), device=device, requires_grad=True
        )  # (gates,)
        # Where a step finds its penalty and leaves what it computes: a recording knows no other places.
        self._penalty = torch.zeros((), device=device)
        self._gradient = torch.zeros_like(self._location)
        self._loss_sum = torch.zeros((), device=device)
        self._recorded = ShapeRecordings(self._step, recorder) if recorder else None

    @property
    def num_gates(self) -> int:
        """One a head."""
        return len(self._location)

    @property
    def steps(self) -> int:
        """Of a training."""
        return self._settings.epochs * math.ceil(len(self._rows) / self._settings.batch_size)

    def train(self, penalty: float, on_step: Callable[[int], None]) -> Trial:
        """What the gates come to under a penalty; `on_step` hears the number of each step done."""
        with torch.no_grad():
            self._location.fill_(_START_LOCATION)
            self._penalty.fill_(penalty)
        self._location.grad = self._gradient
        optimizer = torch.optim.Adam([self._location], lr=self._settings.learning_rate)
        # drawn on the CPU: the same numbers whatever the device
        generator = torch.Generator().manual_seed(seeds.derive(self._seed, "voita/gates"))
        size = self._settings.batch_size
        order = LengthGroups(self._rows.lengths, size, seeds.derive(self._seed, "voita/rows"))
        step = 0
        for epoch in range(self._settings.epochs):
            order.set_epoch(epoch)
            numbers = list(order)
            self._loss_sum.zero_()
            for start in range(0, len(numbers), size):
                batch = self._collate(numbers[start : start + size])
                batch[_UNIFORM] = torch.rand(
                    len(batch["input_ids"]), self.num_gates, generator=generator
                )
                self._take_step(self._to_device(batch))
                optimizer.step()
                step += 1
                on_step(step)
        found = self._location.detach().cpu()
        return Trial(
            penalty=penalty,
            closed=int((self._law.value(found) == 0).sum()),
            expected_open=float(self._law.open_probability(found).sum()),
            loss=float(self._loss_sum) / len(self._rows),
            locations=tuple(found.tolist()),
        )

    def close(self) -> None:
        """Let go of the recorded steps."""
        self._recorded = None
        self._hardware.free_unused()

    def _to_device(self, batch: Batch) -> Batch:
        if self._device.type != "cuda":
            return {name: tensor.to(self._device) for name, tensor in batch.items()}
        # Out of pinned memory, so that the host goes on to the next batch and the GPU does not run dry.
        return {
            name: tensor.pin_memory().to(self._device, non_blocking=True)
            for name, tensor in batch.items()
        }

    def _take_step(self, batch: Batch) -> None:
        if self._recorded is not None:
            try:
                self._recorded(batch)
            except RecordingError as error:
                logger.warning(
                    "The training of gates on %s cannot be recorded as a CUDA graph and runs several times slower: %s",
                    type(self._model).__name__,
                    str(
                        error
                    ),  # a handler that keeps the record must not keep the error, which holds the broken graph
                )
                self._recorded = None
            else:
                return
            gc.collect()  # outside of the clause, where the error no longer holds what is left of the graph
        self._step(batch)

    def _step(self, batch: Batch) -> None:
        """Leave the gradient of a batch and add its rows' losses to the sum."""
        inputs, targets = part_batch(
            {name: tensor for name, tensor in batch.items() if name != _UNIFORM}
        )
        drawn = self._law.draw(self._location, batch[_UNIFORM])
        sizes = list(map(len, self.heads.values()))
        gates = torch.split_with_sizes(drawn, sizes, dim=1)  # (rows, present_heads) a layer
        half = self._hardware.precision == "bfloat16"
        with (
            gated_heads(self._model, dict(zip(self.heads, gates, strict=True))),
            torch.autocast(self._device.type, torch.bfloat16, enabled=half),
        ):
            losses = row_losses(self._model, self._rows.kind, inputs, targets)  # (rows,)
        loss = losses.mean() + self._penalty * self._law.open_probability(self._location).sum()
        (gradient,) = torch.autograd.grad(loss, self._location)
        self._gradient.copy_(gradient)
        self._loss_sum.add_(losses.detach().sum())
