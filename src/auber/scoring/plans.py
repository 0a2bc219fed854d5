"""Scores plans for the whole model: heads and neurons of all layers at once.

A CPU computes with sliced matrices, so that a plan costs what it leaves of a pass. A GPU masks
instead, because the shapes of a captured CUDA graph cannot change. Only what the first layer
computes before the plan matters is cached.

Contract: in float32 the predictions equal, row for row and token for token, those of the physically
pruned model.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch

from auber.data.encoding import EncodedRows
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.surgery import remove_remaining
from auber.scoring.layers import PackedLayer, pack_layers
from auber.scoring.scorer import Chunk, PackedScorer
from auber.training.devices import Hardware

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class PlanScorer(PackedScorer):
    """Scores plans over all layers."""

    def __init__(
        self,
        model: PreTrainedModel,
        rows: EncodedRows,
        metric: str,
        hardware: Hardware,
        sharing: int = 1,
        identity: str | None = None,
    ) -> None:
        super().__init__(model, None, rows, metric, hardware, sharing, identity)

    def _logits_of(self, plans: Sequence[PruningPlan]) -> Iterator[torch.Tensor]:
        if self.device.type == "cuda":
            yield from super()._logits_of(plans)
            return
        self._prepare("heads")
        for plan in plans:
            columns = self._weights([plan], (("heads", 0),))[0].bool()
            compute = partial(self._sliced, layers=self._slice(plan), columns=columns)
            yield self._by_chunk(compute)[0]

    def _slice(self, plan: PruningPlan) -> list[PackedLayer]:
        model = self._encoder.model
        # The copy shares all parameters; removal replaces them by new ones.
        twin = copy.deepcopy(model, {id(each): each for each in model.parameters()})
        remove_remaining(twin, plan)
        return pack_layers(encoder_of(twin), max(self._rows.lengths), None)

    def _sliced(
        self, chunk: Chunk, layers: Sequence[PackedLayer], columns: torch.Tensor
    ) -> torch.Tensor:
        """Return the logits of a chunk: (1, rows or tokens, labels)."""
        first, *above = layers
        state = self._below(chunk)
        hidden = first.finish(state.inputs[:, columns], state.residual, chunk.batch)
        return self._climb(above, hidden, chunk.batch, {})
