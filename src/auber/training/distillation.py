"""Distillation: a pruned model learns from the unpruned one, its teacher, as well as from labels.

The loss of a batch is

    (1 - w) task loss + w distance of the outputs + h distance of the hidden states

with `teacher.outputs` for w and `teacher.hidden` for h. Without labels w is 1, and the teacher's
outputs are stored with the rows. The distance of the outputs is that of Hinton et al. (2015,
*Distilling the Knowledge in a Neural Network*) at temperature 2; for numbers it is the squared
difference. The hidden states are those of all layers: pruning leaves their size, so no projection
has to be learned. Their squared difference is divided by the teacher's square.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from auber.config import Teaching
from auber.data.encoding import TAUGHT, part_batch
from auber.training.captured_steps import ComputeLoss
from auber.training.devices import Hardware, cast_copy
from auber.training.outputs import Outputs

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Teacher:
    """A fixed copy of a model that others learn from.

    Without a model, its outputs are stored with the rows (`EncodedRows.taught`).
    """

    def __init__(
        self, model: PreTrainedModel | None, settings: Teaching, hardware: Hardware
    ) -> None:
        self._model: Any = model
        if model is not None:
            copied = cast_copy(model, hardware.device, hardware.dtype)
            self._model = copied.eval().requires_grad_(False)
        self._settings = settings
        self._losses: dict[Outputs, ComputeLoss] = {}

    def loss_of(self, outputs: Outputs) -> ComputeLoss:
        """Return the loss function of a model's outputs; the same one at every call."""
        if outputs not in self._losses:
            self._losses[outputs] = self._make_loss(outputs)
        return self._losses[outputs]

    def _make_loss(self, outputs: Outputs) -> ComputeLoss:
        weight, hidden = self._settings.outputs, self._settings.hidden

        def compute_loss(model: Callable[..., Any], batch: dict[str, Tensor]) -> Tensor:
            inputs, targets = part_batch(batch)
            mask = inputs["attention_mask"]
            answers = targets.pop(TAUGHT, None)
            if answers is None or hidden:
                with torch.no_grad():
                    taught = self._model(**inputs, output_hidden_states=bool(hidden))
            own: list[Any] = []

            def call_once(**given: Tensor) -> Any:
                own.append(model(**given, output_hidden_states=bool(hidden)))
                return own[-1]

            loss = torch.zeros((), device=mask.device)
            if weight < 1:
                loss = (1 - weight) * outputs.batch_loss(call_once, inputs, targets)
            else:
                call_once(**inputs)
            (output,) = own
            if weight:
                answers = outputs.logits(taught) if answers is None else answers
                loss = loss + weight * outputs.distance(outputs.logits(output), answers, mask)
            if hidden:
                states = zip(output.hidden_states[1:], taught.hidden_states[1:], strict=True)
                distances = [_relative_distance(*pair, mask) for pair in states]
                loss = loss + hidden * torch.stack(distances).mean()
            return loss

        return compute_loss


def _relative_distance(states: Tensor, taught: Tensor, mask: Tensor) -> Tensor:
    """Return the squared difference of hidden states (rows, length, hidden) without padding."""
    taught = taught.float()
    distances = F.mse_loss(states.float(), taught, reduction="none").sum(-1)  # (rows, length)
    return (distances * mask).sum() / (taught.square().sum(-1) * mask).sum()
