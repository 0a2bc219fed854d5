"""The scouts of protocol crossfit: models that score the rows they were never tuned on, and are pruned along with the run's own.

A scout is the origin, the model as it was before any tuning, with all the tunings the run's model will have had, on all rows
but one fold. All rows are thus scored by a model that never saw them, and none is lost to tuning. It has to be all tunings: where a
task is learned late, a scout after the first alone has learned nothing that a head could be missed for. Scouts are not tuned
between layers: that would cost as much again for each of them. They live from their stages to the last decision; a run that was
cut loads them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

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

TuneScout = Callable[["PreTrainedModel", int], dict[str, Any]]  # of (scout, fold): what to record


class Scouts:
    """The scouts of a run, one for each fold of its train rows."""

    def __init__(
        self,
        run: Run,
        origin: PreTrainedModel,
        folds: Sequence[Indices],
        device: torch.device,
        tune: TuneScout,
    ) -> None:
        self._run, self._origin, self._folds, self._device, self._tune = (
            run,
            origin,
            folds,
            device,
            tune,
        )
        self._models: dict[int, PreTrainedModel] = {}
        self._digests: dict[int, str] = {}

    @property
    def stages(self) -> list[str]:
        """The names of their stages."""
        return [fold_model_stage(fold) for fold in range(len(self._folds))]

    def fresh(self, plan: PruningPlan) -> PreTrainedModel:
        """The origin without a plan's heads."""
        model = copy.deepcopy(self._origin).to(self._device)
        remove_remaining(model, plan)
        return model

    def make(self, fold: int) -> dict[str, Any]:
        """Tune the scout of a fold; what to record of it."""
        self._models[fold] = self.fresh(PruningPlan())
        self._digests.pop(fold, None)
        return self._tune(self._models[fold], fold)

    def keep(self, fold: int, info: dict[str, Any]) -> None:
        """Write down what was made of a fold, for a run that is cut."""
        self._run.finish_scout(fold_model_stage(fold), info, self._models[fold])

    def parts(self, train: EncodedRows, rows: Indices, plan: PruningPlan) -> list[Fold]:
        """A copy of each scout without a plan's heads, and those of the rows that it scores."""
        found = []
        for fold, own in enumerate(self._folds):
            scored = np.intersect1d(rows, own).tolist()
            if scored:
                scout = self._scout(fold, plan)
                found.append(Fold(scout, train.select(scored), self._identity(fold, scout)))
        return found

    def release(self) -> None:
        """Let go of the models."""
        self._models.clear()
        self._digests.clear()

    def _scout(self, fold: int, plan: PruningPlan) -> PreTrainedModel:
        if fold not in self._models:
            self._models[fold] = self._run.load_stage(fold_model_stage(fold), self._device)
        pruned = copy.deepcopy(self._models[fold])
        remove_remaining(pruned, plan)
        return pruned

    def _identity(self, fold: int, pruned: PreTrainedModel) -> str:
        """What tells a pruned scout from any other: its weights before, and what it has lost since.

        It is copied and pruned anew for every layer: going over all its weights each time would say the same again.
        """
        if fold not in self._digests:
            self._digests[fold] = weights_digest(self._models[fold])
        return f"{self._digests[fold]} without {json.dumps(encoder_of(pruned).removed.to_json())}"
