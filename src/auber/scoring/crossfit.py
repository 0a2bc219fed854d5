"""Cross-fitting: each row of the reward set is scored by the fold model trained without it.

Each fold has a `LayerScorer` for its rows. Their statistics are combined, and the metric is
computed once, over all rows. A metric that fits a scale
and biases to the outputs fits them for each fold: fold models are calibrated differently, and a
shift or scale of one model's logits must not change the score. Such a metric is a mean over rows,
and the terms are combined.

Contract: in float32 a score is the metric of what the physically pruned models predict for their
own rows. A single fold scores like its scorer, bit for bit, and has the same key.
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
from auber.metrics.task_metrics import settle
from auber.models.plan import PruningPlan
from auber.scoring.base import MaskScorer, present_units
from auber.scoring.scorer import LayerScorer
from auber.training.devices import Hardware

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Fold(NamedTuple):
    """A model and the rows that it scores; `identity` replaces a digest of all its weights."""

    model: PreTrainedModel
    rows: EncodedRows
    identity: str | None = None


Folds = Sequence[Fold | tuple["PreTrainedModel", EncodedRows]]


class CrossFitScorer(MaskScorer):
    """Scores masks of one layer over all folds; folds without rows are ignored."""

    def __init__(self, folds: Folds, layer: int, metric: str, hardware: Hardware) -> None:
        named = [Fold(*fold) for fold in folds]
        filled = [fold for fold in named if len(fold.rows)]
        if not filled:
            raise TaskError(
                f"layer {layer}: at least one fold must have rows, found none in {len(folds)} "
                "folds; add rows"
            )
        super().__init__(named[0].model, layer, metric)
        self._terms = self.metric.by_row if len(filled) > 1 else None
        if self._terms is not None:
            self.metric = self.metric.of_terms()
        for fold, (model, _, _) in enumerate(named):
            self._require_same_units(fold, model)
        self._scorers = [
            LayerScorer(model, layer, rows, metric, hardware, len(filled), identity)
            for model, rows, identity in filled
        ]

    @cached_property
    def key(self) -> str:
        """What a score depends on besides the mask: equal keys mean equal scores."""
        keys = [scorer.key for scorer in self._scorers]
        if len(keys) == 1:
            return keys[0]
        if self._terms:  # earlier versions fitted all rows at once
            keys.append("fitted by fold")
        return hashlib.sha256("/".join(keys).encode()).hexdigest()[:24]

    def _statistics(self, plans: Sequence[PruningPlan]) -> Tensor:
        parts = [scorer.statistics(plans) for scorer in self._scorers]
        if self._terms is not None:
            parts = [torch.stack([*map(self._terms, settle(part))]) for part in parts]
        return self._combine(parts)

    def _require_same_units(self, fold: int, model: PreTrainedModel) -> None:
        for (kind, layer), found in present_units(model, self._searched).items():
            first = self._present[kind, layer]
            if found != first:
                raise ModelError(
                    f"layer {layer}: the models of all folds must have the same {kind}, found "
                    f"{list(first)!s:.60} in fold 0 and {list(found)!s:.60} in fold {fold}; remove "
                    f"the same {kind} from each"
                )
