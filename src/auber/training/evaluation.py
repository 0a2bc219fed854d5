"""Scores of a model on rows, by the model's own forward pass.

All reported numbers are computed this way, and the fast scorer is checked against it. A batch that
runs out of memory is halved, and so are all later ones; a row's logits do not depend on the other
rows of its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from auber.data.encoding import EncodedRows, length_batches, pad_batch, part_batch
from auber.data.task_types import get_task_type
from auber.errors import ModelError, first_line
from auber.metrics.task_metrics import get_metric
from auber.training.devices import halve_rows
from auber.training.outputs import outputs_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Scores:
    """The scores of a model on some rows."""

    score: float
    loss: float
    rows: int
    one_class: bool  # all rows, or all words, get the same class, or the same number

    def to_json(self) -> dict[str, Any]:
        """Return the scores as plain JSON types."""
        return asdict(self)


@torch.inference_mode()
def predict(
    model: PreTrainedModel, rows: EncodedRows, tokens_per_batch: int = 8192
) -> torch.Tensor:
    """Return the logits of every row in float32, on the model's device: (rows, labels).

    For tokens and spans return those of every token, row after row: (tokens, labels); for
    embeddings the vectors of the rows. Raise `ModelError` if not even one row fits into memory.
    """
    was_training = model.training
    model.eval()
    found: list[torch.Tensor] = []
    order: list[int] = []
    waiting = length_batches(rows.lengths, tokens_per_batch)
    try:
        while waiting:
            try:
                found.append(_run_batch(model, rows, waiting[0]))
            except torch.OutOfMemoryError as error:
                reason = first_line(error)
            else:
                order += waiting.pop(0)
                continue
            # After the except clause, when the error no longer holds the tensors of the pass.
            waiting = _smaller_batches(model.device, rows.lengths, waiting, reason)
    finally:
        model.train(was_training)
    logits, places = torch.cat(found), torch.tensor(order).argsort()
    if not get_task_type(rows.kind).reads_all:
        return logits[places.to(logits.device)]
    by_row = torch.split_with_sizes(logits, [rows.lengths[row] for row in order])
    return torch.cat([by_row[place] for place in places.tolist()])


def _run_batch(model: PreTrainedModel, rows: EncodedRows, batch: Sequence[int]) -> torch.Tensor:
    inputs, _ = part_batch(pad_batch([rows[index] for index in batch], rows.pad_token_id))
    inputs = {name: tensor.to(model.device) for name, tensor in inputs.items()}
    outputs = outputs_of(rows.kind, model)
    return outputs.pack(outputs.logits(model(**inputs)), inputs["attention_mask"]).float()


def _smaller_batches(
    device: torch.device, lengths: Sequence[int], waiting: list[list[int]], reason: str
) -> list[list[int]]:
    """Return all rows in batches of half the tokens of the first, which ran out of memory."""
    first = waiting[0]
    width = lengths[first[0]]  # the longest row is the first
    fewer = halve_rows("evaluating", len(first), width, device, reason, ModelError)
    left = [row for batch in waiting for row in batch]
    smaller = length_batches([lengths[row] for row in left], fewer * width)
    return [[left[place] for place in places] for places in smaller]


def evaluate_rows(model: PreTrainedModel, rows: EncodedRows, metric: str) -> Scores:
    """Return the metric and the mean loss of a model on rows."""
    return score_logits(predict(model, rows), model, rows, metric)


def score_logits(
    logits: torch.Tensor, model: PreTrainedModel, rows: EncodedRows, metric: str
) -> Scores:
    """Return the scores of the logits that `predict` returns for a model and rows."""
    truth = rows.truth(logits.device)
    outputs = outputs_of(rows.kind, model)
    return Scores(
        score=float(get_metric(metric).compute(logits, truth)),
        loss=float(outputs.mean_loss(logits, truth)),
        rows=len(rows),
        one_class=outputs.is_one_answer(logits, truth),
    )
