"""Hard-concrete gates on the units of a model with fixed weights, trained with the task's loss.

A gate stands for a head or for a block of a layer's neurons. It is a stretched binary concrete
variable, clipped to [0, 1] (Louizos, Welling and Kingma 2018): it is exactly 0 or 1 with some
probability and still has a gradient. A penalty on the expected number of open gates is added to the
loss; for a target size, gates count by their multiply-adds. Dropout is off. Each row draws its own
gates, which reduces the gradient's noise. All penalties use the same draws, which makes the number
of closed gates a smoother function of the penalty. On a GPU all trainings replay captured steps.
"""

from __future__ import annotations

import gc
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from auber.data.encoding import part_batch
from auber.models.encoders import encoder_of
from auber.models.surgery import gated
from auber.search.blocks import rank_by_norm
from auber.search.methods import RankingInputs
from auber.search.rankings.common import by_kind, frozen_copy, present_units, row_losses
from auber.search.rankings.selection import Site, UnitScores, cost_by_kind, costs_of
from auber.system import seeds
from auber.training.batches import CAPTURE_WIDTH, LengthGroups, RowCollator
from auber.training.cuda_graphs import Batch, Capture, CaptureError, ShapeGraphs

logger = logging.getLogger(__name__)

_FIRST_LOCATION = 2.0  # all gates begin open: with the usual shape, 97 % of the draws are above 0
_UNIFORM = "uniform"  # the column of random numbers in a batch


@dataclass(frozen=True)
class HardConcrete:
    """The distribution of a gate around a location (the logarithm of alpha in the papers)."""

    temperature: float
    stretch: float  # the concrete variable is stretched to [-stretch, 1 + stretch], then clipped

    def draw(self, location: Tensor, uniform: Tensor) -> Tensor:
        """Return gates from uniform numbers in [0, 1), differentiable by the location."""
        return self._clip(((location + uniform.logit(eps=1e-6)) / self.temperature).sigmoid())

    def value(self, location: Tensor) -> Tensor:
        """Return the gates without noise; 0 is closed."""
        return self._clip(location.sigmoid())

    def open_probability(self, location: Tensor) -> Tensor:
        """Return the probability that a drawn gate is not 0."""
        return (location - self.temperature * math.log(self.stretch / (1 + self.stretch))).sigmoid()

    def _clip(self, concrete: Tensor) -> Tensor:
        return (concrete * (1 + 2 * self.stretch) - self.stretch).clamp(0.0, 1.0)


@dataclass(frozen=True)
class Trial:
    """The gates after training with one penalty."""

    penalty: float
    closed: int
    expected_open: float
    loss: float  # the task's, mean over the last epoch, with drawn gates
    locations: tuple[float, ...]  # of all gates: of heads, then of blocks, layer by layer

    def to_json(self) -> dict[str, Any]:
        """Return all but the locations."""
        fields = asdict(self)
        del fields["locations"]
        return fields


def _block_indices(blocks: Sequence[Sequence[int]]) -> Tensor:
    """Return the index of each unit's block: (present_units,)."""
    of = {unit: index for index, block in enumerate(blocks) for unit in block}
    return torch.tensor([of[unit] for unit in sorted(of)])


class GateTraining:
    """Trains gates on the units of a model; every training begins with the same state.

    It holds a copy of the model and, with `capture`, the memory of the captured steps until
    `close`.
    """

    def __init__(self, inputs: RankingInputs, capture: Capture | None = None) -> None:
        self._rows, self._seed = inputs.rows, inputs.config.seed
        self._settings = inputs.config.voita
        self._hardware, self._device = inputs.hardware, inputs.hardware.device
        self._model = frozen_copy(inputs)
        encoder = encoder_of(self._model)
        self.blocks: dict[Site, Sequence[Sequence[int]]] = {
            (kind, layer): rank_by_norm(encoder, layer, units)
            if kind == "neurons"
            else [(head,) for head in units]
            for (kind, layer), units in present_units(inputs).items()
        }
        self._block_of = {
            site: _block_indices(blocks).to(self._device) for site, blocks in self.blocks.items()
        }
        # What closing each gate counts: its share of the multiply-adds, or 1 for a number of heads.
        self.counts = self._find_counts(inputs)
        self._distribution = HardConcrete(self._settings.temperature, self._settings.stretch)
        self._collate = RowCollator(inputs.rows, CAPTURE_WIDTH if capture else 1)
        num_gates = sum(map(len, self.blocks.values()))
        self._location = torch.zeros(num_gates, device=self._device, requires_grad=True)
        # A captured step reads and writes these tensors, so they stay the same for all trainings.
        self._penalty = torch.zeros((), device=self._device)
        self._gradient = torch.zeros_like(self._location)
        self._loss_sum = torch.zeros((), device=self._device)
        self._captured = ShapeGraphs(self._step, capture) if capture else None

    @property
    def num_gates(self) -> int:
        """The number of gates, one per head or block of neurons."""
        return len(self._location)

    @property
    def steps(self) -> int:
        """The number of steps of a training."""
        return self._settings.epochs * math.ceil(len(self._rows) / self._settings.batch_size)

    def train(self, penalty: float, on_step: Callable[[int], None]) -> Trial:
        """Train with a penalty; `on_step` gets the number of each step done."""
        with torch.no_grad():
            self._location.fill_(_FIRST_LOCATION)
            self._penalty.fill_(penalty)
        self._location.grad = self._gradient
        optimizer = torch.optim.Adam([self._location], lr=self._settings.learning_rate)
        # on the CPU: the same numbers for every device
        generator = torch.Generator().manual_seed(seeds.derive(self._seed, "voita/gates"))
        size = self._settings.batch_size
        order = LengthGroups(self._rows.lengths, size, seeds.derive(self._seed, "voita/rows"))
        step = 0
        for epoch in range(self._settings.epochs):
            order.set_epoch(epoch)
            indices = list(order)
            self._loss_sum.zero_()
            for start in range(0, len(indices), size):
                batch = self._collate(indices[start : start + size])
                num_rows = len(batch["input_ids"])
                batch[_UNIFORM] = torch.rand(num_rows, self.num_gates, generator=generator)
                self._take_step(self._to_device(batch))
                optimizer.step()
                step += 1
                on_step(step)
        found = self._location.detach().cpu()
        return Trial(
            penalty=penalty,
            closed=int((self._distribution.value(found) == 0).sum()),
            expected_open=float(self._distribution.open_probability(found).sum()),
            loss=float(self._loss_sum) / len(self._rows),
            locations=tuple(found.tolist()),
        )

    def measure_closed(self, trial: Trial) -> float:
        """Return the number of closed gates, or their share of the encoder's multiply-adds."""
        values = self._distribution.value(torch.tensor(trial.locations))
        return float(self.counts.cpu()[values == 0].sum())

    def score(self, trial: Trial) -> UnitScores:
        """Return the location of each unit's gate; the neurons of a block share one."""
        locations = iter(trial.locations)
        scores: dict[Site, dict[int, float]] = {}
        for site, blocks in self.blocks.items():
            of_blocks = [(block, next(locations)) for block in blocks]
            scores[site] = {unit: score for block, score in of_blocks for unit in block}
        return scores

    def close(self) -> None:
        """Free the memory of the captured steps."""
        self._captured = None
        self._hardware.free_unused()

    def _find_counts(self, inputs: RankingInputs) -> Tensor:
        costs = costs_of(inputs.encoder, inputs.config.max_length)
        cost, has_size = cost_by_kind(costs), inputs.num_removed is None
        counts = [
            cost[kind] * len(block) / costs.total if has_size else 1.0
            for (kind, _), blocks in self.blocks.items()
            for block in blocks
        ]
        return torch.tensor(counts, device=self._device)

    def _to_device(self, batch: Batch) -> Batch:
        if self._device.type != "cuda":
            return {name: tensor.to(self._device) for name, tensor in batch.items()}
        # From pinned memory, so that the host prepares the next batch while the GPU computes.
        return {
            name: tensor.pin_memory().to(self._device, non_blocking=True)
            for name, tensor in batch.items()
        }

    def _take_step(self, batch: Batch) -> None:
        if self._captured is not None:
            try:
                self._captured(batch)
            except CaptureError as error:
                logger.warning(
                    "The training of gates on %s cannot be captured as a CUDA graph and runs "
                    "several times slower: %s",
                    type(self._model).__name__,
                    # as text: a handler that stores the log record must not keep the broken graph
                    str(error),
                )
                self._captured = None
            else:
                return
            gc.collect()  # after the except clause, when the error no longer holds the graph
        self._step(batch)

    def _step(self, batch: Batch) -> None:
        """Set the gradient of a batch, and add its rows' losses to the sum."""
        columns = {name: tensor for name, tensor in batch.items() if name != _UNIFORM}
        inputs, targets = part_batch(columns)
        drawn = self._distribution.draw(self._location, batch[_UNIFORM])
        of_blocks = torch.split_with_sizes(drawn, [*map(len, self.blocks.values())], dim=1)
        gates = {  # (rows, present_units) each
            site: found[:, self._block_of[site]]
            for site, found in zip(self.blocks, of_blocks, strict=True)
        }
        half = self._hardware.precision == "bfloat16"
        with (
            gated(self._model, **by_kind(gates)),
            torch.autocast(self._device.type, torch.bfloat16, enabled=half),
        ):
            losses = row_losses(self._model, self._rows.kind, inputs, targets)  # (rows,)
        is_open = self._distribution.open_probability(self._location)
        # The counts are scaled to a mean of 1, so that penalties mean about the same.
        open_gates = (is_open * (self.counts / self.counts.mean())).sum()
        loss = losses.mean() + self._penalty * open_gates
        (gradient,) = torch.autograd.grad(loss, self._location)
        self._gradient.copy_(gradient)
        self._loss_sum.add_(losses.detach().sum())
