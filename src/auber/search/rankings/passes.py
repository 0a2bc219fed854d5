"""How the ranking methods run the fine-tuned model over its rows: on a copy that cannot learn, dropout off.

A row's own loss is that of its kind of task: squared error or cross-entropy of its label, the mean over its words, or the mean
of its answer's start and end.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from auber.data.encoding import EncodedRows, length_batches, pad_batch, part_batch
from auber.models.encoders import Encoder
from auber.search.methods import RankingWork
from auber.training.outputs import OUTPUTS, Targets

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Inputs = dict[str, Tensor]


def frozen_copy(work: RankingWork) -> PreTrainedModel:
    """A copy of the model in eval mode whose weights take no gradients."""
    return copy.deepcopy(work.model).to(work.hardware.device).eval().requires_grad_(False)


def present_heads(encoder: Encoder) -> dict[int, tuple[int, ...]]:
    """The heads that are there, by layer; layers that have none are left out."""
    return {
        layer: heads for layer in range(encoder.num_layers) if (heads := encoder.present(layer))
    }


def padded_batches(
    rows: EncodedRows, tokens_per_batch: int, device: torch.device
) -> Iterator[tuple[Inputs, Targets]]:
    """The rows once, longest first: what the model takes, each (rows, longest), and what its loss takes."""
    for batch in length_batches(rows.lengths, tokens_per_batch):
        padded = pad_batch([rows[row] for row in batch], rows.pad_token_id)
        yield part_batch({name: tensor.to(device) for name, tensor in padded.items()})


def row_losses(model: PreTrainedModel, kind: str, inputs: Inputs, targets: Targets) -> Tensor:
    """The task's loss of each row of a batch, (rows,)."""
    outputs = OUTPUTS[kind]
    return outputs.row_losses(outputs.logits(model(**inputs)), targets, inputs["attention_mask"])
