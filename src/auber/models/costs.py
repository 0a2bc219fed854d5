"""What heads and neurons cost: multiply-adds per token, and parameters.

A head computes its part of four projections, its attention scores and their mixing; a neuron one
row of the expanding matrix (two if gated) and one column of the contracting one. Norms, softmax and
activations are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from auber.models.encoders import Encoder, encoder_of
from auber.models.encoders.base import FusedProjection
from auber.models.plan import Cost, PruningPlan

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class UnitCosts:
    """The multiply-adds per token of one unit, and the sizes of the unpruned encoder."""

    head: int
    neuron: int
    num_layers: int
    num_heads: int  # per layer, as are neurons
    num_neurons: int

    @classmethod
    def of(cls, encoder: Encoder, length: int) -> UnitCosts:
        """Return the costs in rows of `length` tokens."""
        return cls(
            encoder.head_cost(length),
            encoder.neuron_cost,
            encoder.num_layers,
            encoder.num_heads,
            encoder.num_neurons,
        )

    @property
    def total(self) -> int:
        """The multiply-adds per token of the unpruned encoder."""
        layer = self.num_heads * self.head + self.num_neurons * self.neuron
        return self.num_layers * layer

    def share(self, removed: PruningPlan) -> float:
        """Return the share of multiply-adds that remains."""
        saved = removed.num_heads * self.head + removed.num_neurons * self.neuron
        return 1 - saved / self.total


def remaining_cost(model: PreTrainedModel, plan: PruningPlan, length: int) -> Cost:
    """Return what remains of the unpruned model without the plan's units and those already gone."""
    encoder = encoder_of(model)
    gone = encoder.removed
    removed = gone | plan
    removed.check(
        encoder.num_layers, encoder.num_heads, encoder.num_neurons, allow_empty_layers=True
    )
    head, neuron = _unit_parameters(encoder)
    now = sum(parameter.numel() for parameter in model.parameters())
    unpruned = now + gone.num_heads * head + gone.num_neurons * neuron
    lost = removed.num_heads * head + removed.num_neurons * neuron
    multiply_adds = UnitCosts.of(encoder, length).share(removed)
    return Cost(multiply_adds=multiply_adds, parameters=1 - lost / unpruned)


def _unit_parameters(encoder: Encoder) -> tuple[int, int]:
    """Return the parameters of a head and of a neuron."""
    parts = encoder.parts(0)
    head = parts.output.out_features
    for projection in parts.projections:
        linear = projection.fused if isinstance(projection, FusedProjection) else projection
        head += _per_row(linear)
    rows = 2 if parts.is_gated else 1
    return encoder.head_dim * head, rows * _per_row(parts.expand) + parts.contract.out_features


def _per_row(linear: nn.Linear) -> int:
    return linear.in_features + (linear.bias is not None)
