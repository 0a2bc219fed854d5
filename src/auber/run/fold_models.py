"""The fold models of protocol crossfit (cross-fitting): each scores the rows it was not trained on.

Fold model k is the pretrained model with all the tunings of the run's own model, on all rows but
those of fold k. Together they score every row, and no row is lost for tuning. They get all tunings
because a model after the first alone has not learned enough for its heads to matter. They are not
tuned between layers, which would multiply the cost. They exist from their stages to the last
decision; a resumed run loads them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from auber.data.encoding import EncodedRows
from auber.data.splits import Indices
from auber.models.checkpoint import weights_digest
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.surgery import remove_remaining
from auber.run.folder import Run
from auber.scoring import Fold
from auber.search.stages import fold_model_stage

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


class FoldModels:
    """The fold models of a run, one for each fold of its training rows."""

    def __init__(
        self, run: Run, pretrained: PreTrainedModel, folds: Sequence[Indices], device: torch.device
    ) -> None:
        self._run, self._pretrained, self._folds, self._device = run, pretrained, folds, device
        self._models: dict[int, PreTrainedModel] = {}
        self._digests: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._folds)

    def copy_pretrained(self, plan: PruningPlan) -> PreTrainedModel:
        """Return a copy of the pretrained model without the heads of a plan."""
        model = copy.deepcopy(self._pretrained).to(self._device)
        remove_remaining(model, plan)
        return model

    def make(self, fold: int) -> PreTrainedModel:
        """Return the new model of a fold, which the caller tunes."""
        self._models[fold] = self.copy_pretrained(PruningPlan())
        self._digests.pop(fold, None)
        return self._models[fold]

    def load(self, fold: int) -> PreTrainedModel:
        """Return the model of a fold, from memory or from its finished stage."""
        if fold not in self._models:
            self._models[fold] = self._run.load_stage(fold_model_stage(fold), self._device)
        return self._models[fold]

    def make_parts(self, train: EncodedRows, rows: Indices, plan: PruningPlan) -> list[Fold]:
        """Return a copy of each fold model without a plan's heads, and the rows it scores."""
        found = []
        for fold, own in enumerate(self._folds):
            scored = np.intersect1d(rows, own).tolist()
            if scored:
                pruned = copy.deepcopy(self.load(fold))
                remove_remaining(pruned, plan)
                found.append(Fold(pruned, train.select(scored), self._identify(fold, pruned)))
        return found

    def release(self) -> None:
        """Free the models."""
        self._models.clear()
        self._digests.clear()

    def _identify(self, fold: int, pruned: PreTrainedModel) -> str:
        """Return what distinguishes a pruned fold model: its digest before, and the heads it lost.

        Hashing the weights once is enough, although every layer prunes a new copy.
        """
        if fold not in self._digests:
            self._digests[fold] = weights_digest(self._models[fold])
        return f"{self._digests[fold]} without {json.dumps(encoder_of(pruned).removed.identity())}"
