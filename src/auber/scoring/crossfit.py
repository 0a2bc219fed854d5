"""Cross-fitting: each row of the reward set is scored by the fold model trained without it.

Each fold has a `LayerScorer` for its rows. Their statistics are combined, and the metric is
computed once, over all rows. A metric that fits a scale and biases to the outputs fits them for
each fold: fold models are calibrated differently, and a shift or scale of one model's logits must
not change the score. Such a metric is a mean over rows, and the terms are combined.

Contract: in float32 a score is the metric of what the physically pruned models predict for their
own rows. A single fold scores like a `LayerScorer`, bit for bit, and has the same key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from auber.data.encoding import EncodedRows
from auber.errors import ModelError, TaskError
from auber.metrics.task_metrics import get_metric, settle
from auber.models.encoders import encoder_of
from auber.scoring.base import MaskScorer
from auber.scoring.scorer import LayerScorer
from auber.training.devices import Hardware

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Fold(NamedTuple):
    """A model and the rows that it scores; `identity` replaces a digest of all its weights."""

    model: PreTrainedModel
    rows: EncodedRows
    identity: str | None = None


class CrossFitScorer(MaskScorer):
    """Scores the rows of each fold with its model; folds without rows are ignored."""

    def __init__(
        self,
        folds: Sequence[Fold | tuple[PreTrainedModel, EncodedRows]],
        layer: int,
        metric: str,
        hardware: Hardware,
    ) -> None:
        named = [Fold(*fold) for fold in folds]
        filled = [fold for fold in named if len(fold.rows)]
        if not filled:
            raise TaskError(
                f"layer {layer}: at least one fold must have rows, found none in {len(folds)} "
                "folds; add rows"
            )
        present = _common_heads([fold.model for fold in named], layer)
        rule = get_metric(metric)
        self._terms = rule.by_row if len(filled) > 1 else None
        super().__init__(layer, present, rule.of_terms() if self._terms else rule)
        sharing = len(filled)
        self._scorers = [
            LayerScorer(model, layer, rows, metric, hardware, sharing=sharing, identity=identity)
            for model, rows, identity in filled
        ]

    @cached_property
    def key(self) -> str:
        """What a score depends on besides layer and mask: equal keys mean equal scores."""
        keys = [scorer.key for scorer in self._scorers]
        if len(keys) == 1:
            return keys[0]
        keys += (
            ["fitted by fold"] if self._terms else []
        )  # earlier versions fitted all rows at once
        return hashlib.sha256("/".join(keys).encode()).hexdigest()[:24]

    def _statistics(self, masks: Sequence[Sequence[int]]) -> Tensor:
        parts = [scorer.statistics(masks) for scorer in self._scorers]
        if self._terms is not None:
            parts = [torch.stack([*map(self._terms, settle(part))]) for part in parts]
        return self._combine(parts)


def _common_heads(models: Sequence[PreTrainedModel], layer: int) -> tuple[int, ...]:
    present = [tuple(encoder_of(model).present(layer)) for model in models]
    for fold, heads in enumerate(present):
        if heads != present[0]:
            raise ModelError(
                f"layer {layer}: the models of all folds must have the same heads, found "
                f"{list(present[0])} in fold 0 and {list(heads)} in fold {fold}; remove the same "
                "heads from each"
            )
    return present[0]
