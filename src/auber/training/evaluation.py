"""Scores of a whole model on rows, by the model's own forward pass.

This is the plain way: what the reported numbers come from, and what the fast scorer is checked against. A batch that runs out
of memory is halved, and so are those after it; no row's logits depend on the rows beside it.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from auber.data.encoding import EncodedRows, length_batches, pad_batch, part_batch
from auber.data.task_types import get_task_type
from auber.errors import ModelError
from auber.metrics.task_metrics import get_metric, predicts_one_number
from auber.system.distributed import num_processes
from auber.training.outputs import OUTPUTS

if TYPE_CHECKING:
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Scores:
    """How a model does on some rows."""

    score: float
    loss: float
    rows: int
    one_class: (
        bool  # all of several rows, or of several words, get the same class, or the same number
    )

    def to_json(self) -> dict[str, Any]:
        """A plain JSON object."""
        return asdict(self)


@torch.inference_mode()
def predict(
    model: PreTrainedModel, rows: EncodedRows, tokens_per_batch: int = 8192
) -> torch.Tensor:
    """The logits of every row, in the order of the rows, in float32 on the model's device: (rows, labels).

    For tokens and spans those of every token, row after row: (tokens, labels). `ModelError` where not even one row fits into
    memory.
    """
    was_training = model.training
    model.eval()
    try:
        pieces, order = _pass_all(model, rows, length_batches(rows.lengths, tokens_per_batch))
    finally:
        model.train(was_training)
    logits, places = torch.cat(pieces), torch.tensor(order).argsort()
    if not get_task_type(rows.kind).reads_all:
        return logits[places.to(logits.device)]
    by_row = torch.split_with_sizes(logits, [rows.lengths[row] for row in order])
    return torch.cat([by_row[place] for place in places.tolist()])


def _pass_all(
    model: PreTrainedModel, rows: EncodedRows, batches: list[list[int]]
) -> tuple[list[torch.Tensor], list[int]]:
    """The logits of each batch, and the rows in the order in which they were passed through the model."""
    pieces: list[torch.Tensor] = []
    order: list[int] = []
    waiting = batches
    while waiting:
        batch = waiting[0]
        try:
            pieces.append(_pass(model, rows, batch))
        except torch.OutOfMemoryError as error:
            reason = str(error).partition("\n")[0]
        else:
            order.extend(batch)
            waiting = waiting[1:]
            continue
        # Outside of the clause, where the error no longer holds what the pass had computed.
        waiting = _smaller_batches(model.device, rows.lengths, waiting, reason)
    return pieces, order


def _pass(model: PreTrainedModel, rows: EncodedRows, batch: Sequence[int]) -> torch.Tensor:
    """The logits of some rows, without those of padding: (rows, labels) or (tokens, labels)."""
    inputs, _ = part_batch(pad_batch([rows[index] for index in batch], rows.pad_token_id))
    inputs = {name: tensor.to(model.device) for name, tensor in inputs.items()}
    outputs = OUTPUTS[rows.kind]
    return outputs.pack(outputs.logits(model(**inputs)), inputs["attention_mask"]).float()


def _smaller_batches(
    device: torch.device, lengths: Sequence[int], waiting: list[list[int]], reason: str
) -> list[list[int]]:
    """The rows of all batches, of which the first ran out of memory, in batches of half its tokens."""
    first = waiting[0]
    width = lengths[first[0]]  # rows stand longest first
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    if len(first) == 1:
        raise ModelError(
            f"evaluating: one row of {width} tokens does not fit into the memory of {name} ({reason}); free some of it, or lower "
            "max_length"
        )
    if num_processes() > 1:
        # Other batches may give other last bits, and processes that differ in them could keep different weights.
        raise ModelError(
            f"evaluating: {len(first)} rows of {width} tokens do not fit into the memory of {name} ({reason}), and batches are not "
            "halved in a group of processes; free some memory, or lower max_length"
        )
    fewer = (len(first) + 1) // 2
    logger.warning(
        "evaluating: out of memory on %s with %d rows of %d tokens at a time; goes on with %d at a time",
        name, len(first), width, fewer,
    )  # fmt: skip
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    left = [row for batch in waiting for row in batch]
    return [
        [left[place] for place in places]
        for places in length_batches([lengths[row] for row in left], fewer * width)
    ]


def evaluate_rows(model: PreTrainedModel, rows: EncodedRows, metric: str) -> Scores:
    """The metric and the mean loss of a model on rows."""
    logits, truth = predict(model, rows), rows.truth(model.device)
    outputs, compared = OUTPUTS[rows.kind], get_metric(metric)
    score, loss = float(compared.compute(logits, truth)), float(outputs.mean_loss(logits, truth))
    collapsed = (
        predicts_one_number(logits)
        if compared.is_regression
        else outputs.is_one_answer(logits, truth)
    )
    return Scores(score, loss, len(rows), collapsed)
