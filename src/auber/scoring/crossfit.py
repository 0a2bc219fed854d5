"""One layer's rewards from several models, each scoring rows of its own: those it never saw, where the models are scouts.

Each part is an ordinary `LayerScorer`; the statistics of all parts are joined, and the metric is one, over all rows.

Contract: in float32 a score is the metric of what the physically pruned models, run plainly, predict for the rows of their
parts. One part scores as a `LayerScorer` does, bit for bit, and has the key of one with the same `identity`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch

from auber.data.encoding import EncodedRows
from auber.errors import ModelError, TaskError
from auber.metrics.task_metrics import get_metric
from auber.models.encoders import encoder_of
from auber.scoring.base import MaskScorer
from auber.scoring.scorer import LayerScorer
from auber.training.devices import Hardware

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Part(NamedTuple):
    """A model and the rows that it scores; `identity` tells it from any other model, where the caller knows that."""

    model: PreTrainedModel
    rows: EncodedRows
    identity: str | None = None


class CrossedScorer(MaskScorer):
    """Scores masks as `LayerScorer` does, the rows of each part by its model; a part without rows has no say."""

    def __init__(
        self,
        parts: Sequence[Part | tuple[PreTrainedModel, EncodedRows]],
        layer: int,
        metric: str,
        hardware: Hardware,
    ) -> None:
        every = [Part(*part) for part in parts]
        filled = [part for part in every if len(part.rows)]
        if not filled:
            raise TaskError(
                f"layer {layer}: one part at least must have rows, found none in {len(parts)} parts; add rows"
            )
        super().__init__(
            layer, _common_heads([part.model for part in every], layer), get_metric(metric)
        )
        self._scorers = [
            LayerScorer(
                part.model,
                layer,
                part.rows,
                metric,
                hardware,
                tenants=len(filled),
                identity=part.identity,
            )
            for part in filled
        ]

    @cached_property
    def key(self) -> str:
        """What a score depends on beside layer and mask: equal keys, equal scores."""
        keys = [scorer.key for scorer in self._scorers]
        return (
            keys[0] if len(keys) == 1 else hashlib.sha256("/".join(keys).encode()).hexdigest()[:24]
        )

    def _statistics(self, masks: Sequence[Sequence[int]]) -> torch.Tensor:
        return self._joined([scorer.statistics(masks) for scorer in self._scorers])


def _common_heads(models: Sequence[PreTrainedModel], layer: int) -> tuple[int, ...]:
    """The heads that the layer of every model has."""
    present = [tuple(encoder_of(model).present(layer)) for model in models]
    for part, heads in enumerate(present):
        if heads != present[0]:
            raise ModelError(
                f"layer {layer}: the models of all parts must have the same heads, found {list(present[0])} in part 0 and "
                f"{list(heads)} in part {part}; remove the same heads from each"
            )
    return present[0]
