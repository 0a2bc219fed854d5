"""Scores of a whole model on rows, by the model's own forward pass.

This is the plain way: what the reported numbers come from, and what the fast scorer is checked against.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from auber.batching import length_batches
from auber.kinds import get_kind
from auber.metrics import Truth, get_metric, predicts_one_number
from auber.outputs import OUTPUTS
from auber.tasks.encoding import EncodedRows, pad_batch, part_batch

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Scores:
    """How a model does on some rows."""

    score: float
    loss: float
    rows: int
    one_class: bool  # all of several rows, or of several words, get the same class, or the same number

    def to_json(self) -> dict[str, Any]:
        """A plain JSON object."""
        return asdict(self)


@torch.inference_mode()
def predict(model: PreTrainedModel, rows: EncodedRows, tokens_per_batch: int = 8192) -> torch.Tensor:
    """The logits of every row, in the order of the rows, in float32 on the model's device: (rows, labels).

    For tokens and spans those of every token, row after row: (tokens, labels).
    """
    outputs, was_training = OUTPUTS[rows.kind], model.training
    model.eval()
    pieces, order = [], []
    for batch in length_batches(rows.lengths, tokens_per_batch):
        inputs, _ = part_batch(pad_batch([rows[index] for index in batch], rows.pad_token_id))
        inputs = {name: tensor.to(model.device) for name, tensor in inputs.items()}
        pieces.append(outputs.pack(outputs.logits(model(**inputs)), inputs["attention_mask"]).float())
        order.extend(batch)
    model.train(was_training)
    logits, places = torch.cat(pieces), torch.tensor(order).argsort()
    if not get_kind(rows.kind).reads_all:
        return logits[places.to(logits.device)]
    by_row = torch.split_with_sizes(logits, [rows.lengths[row] for row in order])
    return torch.cat([by_row[place] for place in places.tolist()])


def evaluate_rows(model: PreTrainedModel, rows: EncodedRows, metric: str) -> Scores:
    """The metric and the mean loss of a model on rows."""
    return _scores(predict(model, rows), rows.truth(model.device), metric, rows.kind, len(rows))


def score_logits(logits: torch.Tensor, labels: torch.Tensor, metric: str) -> Scores:
    """The metric and the mean loss of given logits, for rows with one label each."""
    return _scores(logits, labels.to(logits.device), metric, "sequence", len(labels))


def _scores(logits: torch.Tensor, truth: Truth, metric: str, kind: str, num_rows: int) -> Scores:
    outputs, compared = OUTPUTS[kind], get_metric(metric)
    score, loss = float(compared.compute(logits, truth)), float(outputs.mean_loss(logits, truth))
    collapsed = predicts_one_number(logits) if compared.is_regression else outputs.is_one_answer(logits, truth)
    return Scores(score, loss, num_rows, collapsed)
