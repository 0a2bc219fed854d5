"""Mask heads temporarily or remove them for good; both compute the same function.

A head acts on the rest of the model only through its columns of its layer's output projection.
Multiplying the input of that projection by 0 there computes what the model without the head
computes. A gate between 0 and 1 gives the gradient of the loss with respect to the presence of the
head. transformers 5 silently ignores `head_mask`; this module does not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from auber.errors import ModelError, PlanError
from auber.models.encoders import Encoder, encoder_of
from auber.models.plan import PruningPlan

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Plan = Mapping[int, Iterable[int]]


@contextmanager
def gated_heads(model: PreTrainedModel, gates: Mapping[int, Tensor]) -> Iterator[None]:
    """Multiply the output of each present head of these layers by its gate.

    `gates[layer]` has shape (present_heads,), or (rows, present_heads) if each row of the batch has
    its own gates; one backward pass then gives the gradients of every row. Gradients reach the
    gates; with gradient checkpointing call `backward` inside too. Nested gates multiply.
    """
    encoder = encoder_of(model)
    for layer, gate in gates.items():
        if layer not in range(encoder.num_layers):
            raise PlanError(
                f"layer {layer}: the model has layers 0 to {encoder.num_layers - 1}; "
                "correct the gates"
            )
        expected = (len(encoder.present(layer)),)
        if gate.dim() not in (1, 2) or gate.shape[-1:] != expected:
            raise PlanError(
                f"layer {layer}: one gate per present head, shape {expected}, is needed, "
                f"found {tuple(gate.shape)}"
            )
    handles = [
        encoder.parts(layer).output.register_forward_pre_hook(_Gate(layer, gate, encoder.head_dim))
        for layer, gate in gates.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def masked_heads(
    model: PreTrainedModel, plan: Plan, *, allow_empty_layers: bool = False
) -> Iterator[None]:
    """Mask the plan's heads: the model computes what it would without them. Nested masks add up."""
    encoder = encoder_of(model)
    plan = PruningPlan(plan)
    _check(encoder, plan, allow_empty_layers)
    gates: dict[int, Tensor] = {}
    for layer, heads in plan.items():
        mask = [float(head not in heads) for head in encoder.present(layer)]
        gates[layer] = torch.tensor(mask, device=encoder.parts(layer).output.weight.device)
    with gated_heads(model, gates):
        yield


def remove_heads(model: PreTrainedModel, plan: Plan, *, allow_empty_layers: bool = False) -> None:
    """Slice the plan's heads out of the model, in place, and record them in `model.config`.

    The sliced parameters are new ones of the same dtype, device and `requires_grad`, without
    gradients: create an optimizer afterwards. A plan that does not fit raises `PlanError` before
    anything changes.
    """
    encoder = encoder_of(model)
    plan = PruningPlan(plan)
    _check(encoder, plan, allow_empty_layers)
    for layer, heads in plan.items():
        present = encoder.present(layer)
        encoder.keep(layer, [place for place, head in enumerate(present) if head not in heads])
    encoder.removed = encoder.removed | plan


def remove_remaining(model: PreTrainedModel, plan: Plan) -> None:
    """Slice out those of the plan's heads that the model still has."""
    gone = encoder_of(model).removed
    remove_heads(
        model, {layer: sorted({*heads} - {*gone.removed(layer)}) for layer, heads in plan.items()}
    )


class _Gate:
    """A hook that scales the input of a layer's output projection, head by head."""

    def __init__(self, layer: int, gate: Tensor, head_dim: int) -> None:
        self.layer = layer
        self.gate = gate
        self.head_dim = head_dim

    def __call__(self, _output: nn.Module, arguments: tuple[Any, ...]) -> tuple[Tensor]:
        (context,) = arguments  # (rows, length, present_heads * head_dim)
        columns = self.gate.to(context.dtype).repeat_interleave(self.head_dim, dim=-1)
        if columns.shape[-1] != context.shape[-1]:
            raise ModelError(
                f"layer {self.layer}: heads were removed while masked; "
                "leave the context before remove_heads"
            )
        return (context * columns.unsqueeze(-2),)  # the same gates for all tokens of a row


def _check(encoder: Encoder, plan: PruningPlan, allow_empty_layers: bool) -> None:
    plan.check(encoder.num_layers, encoder.num_heads, allow_empty_layers=allow_empty_layers)
    removed = encoder.removed
    for layer, heads in plan.items():
        gone = [str(head) for head in heads if head in removed.removed(layer)]
        if gone:
            raise PlanError(
                f"layer {layer}: already removed: head {', head '.join(gone)}; "
                "leave it out of the plan"
            )
        if len(heads) == len(encoder.present(layer)) and not allow_empty_layers:
            raise PlanError(
                f"layer {layer}: the plan removes all {len(heads)} heads that are left; "
                "at least one must stay"
            )
