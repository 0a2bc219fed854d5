"""Scores of a whole model on rows, by the model's own forward pass.

This is the plain way: what the reported numbers come from, and what the fast scorer is checked against.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from auber.batching import length_batches
from auber.metrics import get_metric, predicts_one_class
from auber.tasks.encoding import EncodedRows, pad_batch

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Scores:
    """How a model does on some rows."""

    score: float
    loss: float
    rows: int
    one_class: bool  # a classifier that gives every row the same answer

    def to_json(self) -> dict[str, Any]:
        """A plain JSON object."""
        return asdict(self)


@torch.inference_mode()
def predict(model: PreTrainedModel, rows: EncodedRows, tokens_per_batch: int = 8192) -> torch.Tensor:
    """The logits of every row, in the order of the rows, in float32 on the model's device."""  # (rows, labels)
    was_training = model.training
    model.eval()
    pieces, order = [], []
    for batch in length_batches(rows.lengths, tokens_per_batch):
        inputs = pad_batch([rows[index] for index in batch], rows.pad_token_id)
        inputs.pop("labels")
        logits = model(**{name: tensor.to(model.device) for name, tensor in inputs.items()}).logits
        pieces.append(logits.float())
        order.extend(batch)
    model.train(was_training)
    logits = torch.cat(pieces)
    return logits[torch.tensor(order, device=logits.device).argsort()]


def evaluate_rows(model: PreTrainedModel, rows: EncodedRows, metric: str) -> Scores:
    """The metric and the mean loss of a model on rows."""
    return score_logits(predict(model, rows), rows.labels, metric)


def score_logits(logits: torch.Tensor, labels: torch.Tensor, metric: str) -> Scores:
    """The metric and the mean loss of given logits."""
    chosen = get_metric(metric)
    labels = labels.to(logits.device)
    if chosen.kind == "regression":
        loss = F.mse_loss(logits.reshape(-1), labels)
        one_class = False
    else:
        loss = F.cross_entropy(logits, labels)
        one_class = predicts_one_class(logits)
    return Scores(float(chosen.compute(logits, labels)), float(loss), len(labels), one_class)
