"""The scouts of protocol crossfit: models that score the rows they were never tuned on, and are pruned along with the run's own.

A scout is the origin, the model as it was before any tuning, with all the tunings the run's model will have had, on all rows
but one fold. All rows are thus scored by a model that never saw them, and none is lost to tuning. It has to be all tunings: where a
task is learned late, a scout after the first alone has learned nothing that a head could be missed for. Scouts are not tuned
between layers: that would cost as much again for each of them. They live from their stages to the last decision; a run that was
cut loads them. Where heads stand in for those that go, each scout's do so by what they compute for the rows it was tuned on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from auber.mending import Mending, learn_mending, remove_mended
from auber.plan import PruningPlan
from auber.runs import Run
from auber.scoring import Part
from auber.splits import Indices, Splits
from auber.stages import scout_stage
from auber.surgery import remove_heads
from auber.tasks.encoding import EncodedRows

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

TuneScout = Callable[["PreTrainedModel", int], dict[str, Any]]  # of (scout, fold): what to record


class Scouts:
    """The scouts of a run, one for each fold of its train rows; `mends` says whether heads stand in for those that go."""

    def __init__(
        self,
        run: Run,
        origin: PreTrainedModel,
        train: EncodedRows,
        splits: Splits,
        device: torch.device,
        tune: TuneScout,
        *,
        mends: bool,
    ) -> None:
        self._run, self._origin, self._device, self._tune = run, origin, device, tune
        self._train, self._splits, self._mends = train, splits, mends
        self._models: dict[int, PreTrainedModel] = {}
        self._mending: dict[int, dict[int, Mending]] = {}  # by fold and layer

    @property
    def stages(self) -> list[str]:
        """The names of their stages."""
        return [scout_stage(fold) for fold in range(len(self._splits.folds))]

    def fresh(self) -> PreTrainedModel:
        """A copy of the origin."""
        return copy.deepcopy(self._origin).to(self._device)

    def make(self, fold: int) -> dict[str, Any]:
        """Tune the scout of a fold; what to record of it."""
        self._models[fold] = self.fresh()
        return self._tune(self._models[fold], fold)

    def keep(self, fold: int, info: dict[str, Any]) -> None:
        """Write down what was made of a fold, for a run that is cut."""
        self._run.finish_scout(scout_stage(fold), info, self._models[fold])

    def parts(self, layer: int, rows: Indices, plan: PruningPlan) -> list[Part]:
        """Who scores the masks of a layer: a copy of each scout without a plan's heads, and those of the rows that it scores."""
        found = []
        for fold, own in enumerate(self._splits.folds):
            scored = np.intersect1d(rows, own).tolist()
            if scored:
                found.append(Part(self._scout(fold, plan), self._train.select(scored), self._mended(fold).get(layer)))
        return found

    def release(self) -> None:
        """Let go of the models."""
        self._models.clear()
        self._mending.clear()

    def _scout(self, fold: int, plan: PruningPlan) -> PreTrainedModel:
        pruned = copy.deepcopy(self._whole(fold))
        if self._mends:
            remove_mended(pruned, plan, self._mended(fold))
        else:
            remove_heads(pruned, plan)
        return pruned

    def _whole(self, fold: int) -> PreTrainedModel:
        if fold not in self._models:
            self._models[fold] = self._run.load_stage(scout_stage(fold), self._device)
        return self._models[fold]

    def _mended(self, fold: int) -> dict[int, Mending]:
        """How the heads of a scout stand in for each other, by layer; empty where they do not."""
        if self._mends and fold not in self._mending:
            own = self._train.select(self._splits.without_fold(fold).first)
            self._mending[fold] = learn_mending(self._whole(fold), own)
        return self._mending.get(fold, {})
