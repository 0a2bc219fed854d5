"""How the ranking methods run the fine-tuned model over its rows: on a copy that cannot learn, dropout off."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from auber.batching import length_batches
from auber.encoders import Encoder
from auber.methods.base import RankingWork
from auber.tasks.encoding import EncodedRows, pad_batch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Inputs = dict[str, Tensor]


def frozen_copy(work: RankingWork) -> PreTrainedModel:
    """A copy of the model in eval mode whose weights take no gradients."""
    return copy.deepcopy(work.model).to(work.hardware.device).eval().requires_grad_(False)


def present_heads(encoder: Encoder) -> dict[int, tuple[int, ...]]:
    """The heads that are there, by layer; layers that have none are left out."""
    return {layer: heads for layer in range(encoder.num_layers) if (heads := encoder.present(layer))}


def padded_batches(rows: EncodedRows, tokens_per_batch: int, device: torch.device) -> Iterator[tuple[Inputs, Tensor]]:
    """The rows once, longest first: what the model takes, each (rows, longest), and the labels (rows,)."""
    for batch in length_batches(rows.lengths, tokens_per_batch):
        inputs = {
            name: tensor.to(device)
            for name, tensor in pad_batch([rows[row] for row in batch], rows.pad_token_id).items()
        }
        labels = inputs.pop("labels")
        yield inputs, labels


def row_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """The task's loss of each row, (rows,): squared error for targets that are numbers, else cross-entropy."""
    if labels.is_floating_point():
        return F.mse_loss(logits.float().squeeze(-1), labels, reduction="none")
    return F.cross_entropy(logits.float(), labels, reduction="none")
