"""Mask units temporarily or remove them for good; both compute the same function.

A head acts on the rest of the model only through its columns of its layer's output projection, a
neuron only through its column of the contracting matrix. Multiplying the input of that matrix by 0
there computes what the model without the unit computes. A gate between 0 and 1 gives the gradient
of the loss with respect to the presence of the unit. transformers 5 silently ignores `head_mask`;
this module does not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from auber.errors import ModelError, PlanError
from auber.models.encoders import Encoder, encoder_of
from auber.models.plan import PruningPlan

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Plan = PruningPlan | Mapping[int, Iterable[int]]  # a mapping is one of heads
Gates = Mapping[int, Tensor]  # by layer


@contextmanager
def gated(model: PreTrainedModel, heads: Gates, neurons: Gates | None = None) -> Iterator[None]:
    """Multiply the output of each present unit of these layers by its gate.

    `heads[layer]` has shape (present_heads,), or (rows, present_heads) if each row of the batch has
    its own gates; one backward pass then gives the gradients of every row. The same holds for
    `neurons[layer]`. Gradients reach the gates; with gradient checkpointing call `backward` inside
    too. Nested gates multiply.
    """
    encoder = encoder_of(model)
    hooks: list[tuple[nn.Linear, _Gate]] = []
    for unit, gates in (("head", heads), ("neuron", neurons or {})):
        for layer, gate in gates.items():
            if layer not in range(encoder.num_layers):
                raise PlanError(
                    f"layer {layer}: the model has layers 0 to {encoder.num_layers - 1}; "
                    "correct the gates"
                )
            parts = encoder.parts(layer)
            width = encoder.head_dim if unit == "head" else 1
            linear = parts.output if unit == "head" else parts.contract
            expected = (linear.in_features // width,)
            if gate.dim() not in (1, 2) or gate.shape[-1:] != expected:
                raise PlanError(
                    f"layer {layer}: one gate per present {unit}, shape {expected}, is needed, "
                    f"found {tuple(gate.shape)}"
                )
            hooks.append((linear, _Gate(layer, gate, width)))
    handles = [linear.register_forward_pre_hook(hook) for linear, hook in hooks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def masked(
    model: PreTrainedModel, plan: Plan, *, allow_empty_layers: bool = False
) -> Iterator[None]:
    """Mask the plan's units: the model computes what it would without them. Nested masks add up."""
    encoder = encoder_of(model)
    plan = PruningPlan.of(plan)
    _check(encoder, plan, allow_empty_layers)
    heads, neurons = (
        {layer: torch.from_numpy(stays).float().to(model.device) for layer, stays in found.items()}
        for found in _staying(encoder, plan)
    )
    with gated(model, heads, neurons):
        yield


def remove(model: PreTrainedModel, plan: Plan, *, allow_empty_layers: bool = False) -> None:
    """Slice the plan's units out of the model, in place, and record them in `model.config`.

    The sliced parameters are new ones of the same dtype, device and `requires_grad`, without
    gradients: create an optimizer afterwards. A plan that does not fit raises `PlanError` before
    anything changes.
    """
    encoder = encoder_of(model)
    plan = PruningPlan.of(plan)
    _check(encoder, plan, allow_empty_layers)
    removed = encoder.removed | plan
    staying = _staying(encoder, plan)
    for keep, by_layer in zip((encoder.keep, encoder.keep_neurons), staying, strict=True):
        for layer, stays in by_layer.items():
            keep(layer, np.flatnonzero(stays).tolist())
    encoder.removed = removed


def remove_remaining(model: PreTrainedModel, plan: Plan) -> None:
    """Slice out those of the plan's units that the model still has."""
    remove(model, PruningPlan.of(plan) - encoder_of(model).removed)


class _Gate:
    """A hook that scales the input of a linear, unit by unit."""

    def __init__(self, layer: int, gate: Tensor, width: int) -> None:
        self.layer = layer
        self.gate = gate
        self.width = width  # of a unit

    def __call__(self, _linear: nn.Module, arguments: tuple[Any, ...]) -> tuple[Tensor]:
        (inputs,) = arguments  # (rows, length, units * width)
        columns = self.gate.to(inputs.dtype)
        if self.width > 1:
            columns = columns.repeat_interleave(self.width, dim=-1)
        if columns.shape[-1] != inputs.shape[-1]:
            raise ModelError(
                f"layer {self.layer}: units were removed while masked; "
                "leave the context before auber.remove"
            )
        return (inputs * columns.unsqueeze(-2),)  # the same gates for all tokens of a row


def _staying(encoder: Encoder, plan: PruningPlan) -> list[dict[int, np.ndarray]]:
    """Return whether each present head, and each present neuron, of the plan's layers stays."""
    kinds = (encoder.present, plan.heads), (encoder.present_neurons, plan.neurons)
    return [
        {layer: np.isin(present(layer), units, invert=True) for layer, units in gone.items()}
        for present, gone in kinds
    ]


def _check(encoder: Encoder, plan: PruningPlan, allow_empty_layers: bool) -> None:
    plan.check(
        encoder.num_layers,
        encoder.num_heads,
        encoder.num_neurons,
        allow_empty_layers=allow_empty_layers,
    )
    removed = encoder.removed
    for unit, wanted, gone, total in (
        ("head", plan.heads, removed.heads, encoder.num_heads),
        ("neuron", plan.neurons, removed.neurons, encoder.num_neurons),
    ):
        for layer, units in wanted.items():
            earlier = gone.get(layer, ())
            if twice := sorted({*units} & {*earlier}):
                named = f", {unit} ".join(map(str, twice[:10]))
                raise PlanError(
                    f"layer {layer}: already removed: {unit} {named}; leave it out of the plan"
                )
            if len(units) + len(earlier) == total and not allow_empty_layers:
                raise PlanError(
                    f"layer {layer}: the plan removes all {len(units)} {unit}s that are left; "
                    "at least one must stay"
                )
