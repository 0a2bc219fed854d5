"""A reward the plain way: transformers' own forward pass over all rows, the heads of one layer masked.

Batches are padded and brought to the device once, outside of what is timed: a user's loop would pay for that as well, so
the plain ways look a little better here than they are.
"""

from __future__ import annotations

import copy
import time
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from auber.data.encoding import EncodedRows, pad_batch
from auber.metrics.task_metrics import get_metric
from auber.models.plan import PruningPlan
from auber.models.surgery import masked_heads

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_WARM_UP_SECONDS = 2.0


class PlainScorer:
    """Scores plans by the whole model; `padded_to` None sorts the rows by length and pads a batch to its longest row."""

    def __init__(
        self,
        model: PreTrainedModel,
        rows: EncodedRows,
        metric: str,
        *,
        dtype: torch.dtype,
        batch_size: int,
        padded_to: int | None,
    ) -> None:
        self._model = model if model.dtype == dtype else copy.deepcopy(model).to(dtype)
        self._metric = get_metric(metric)
        order = list(range(len(rows)))
        if padded_to is None:
            order.sort(key=lambda row: -rows.lengths[row])
        self._batches: list[dict[str, Tensor]] = []
        for start in range(0, len(order), batch_size):
            batch = pad_batch(
                [rows[row] for row in order[start : start + batch_size]],
                rows.pad_token_id,
                padded_to or 1,
            )
            del batch["labels"]
            self._batches.append({name: tensor.to(model.device) for name, tensor in batch.items()})
        self._labels = rows.labels[torch.tensor(order)].to(model.device)
        self._places = torch.tensor(order).argsort().to(model.device)
        self.logits: Tensor | None = (
            None  # of the last score, (rows, labels), in the order of the rows
        )

    @torch.inference_mode()
    def warm_up(self) -> None:
        """One pass, cut short where it takes long."""
        started = time.perf_counter()
        for batch in self._batches:
            self._model(**batch).logits.sum().item()
            if time.perf_counter() - started > _WARM_UP_SECONDS:
                break

    @torch.inference_mode()
    def score(self, plan: PruningPlan) -> float:
        """The metric without the plan's heads."""
        with masked_heads(self._model, plan):
            logits = torch.cat([self._model(**batch).logits for batch in self._batches]).float()
        score = float(self._metric.compute(logits, self._labels))
        self.logits = logits[self._places]
        return score
