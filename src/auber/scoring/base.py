"""What all scorers share: the masks that they accept, and the standard errors of their scores.

A mask is a `PruningPlan`: units to remove, numbered as in the unpruned model. It may name units
that the model has lost already; they count once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from auber.errors import ConfigError, PlanError
from auber.metrics.task_metrics import Metric, get_metric
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan, kept_units

if TYPE_CHECKING:
    from transformers import PreTrainedModel

KINDS = ("heads", "neurons")
Site = tuple[str, int]  # a kind of unit, and a layer
Mask = PruningPlan | Sequence[int]  # for a scorer of one layer a sequence means heads of it


class Scorer(ABC):
    """Scores masks of one layer of a model, or of all if `layer` is None.

    The score of a mask is a function of its statistics, which add up over parts of the rows.
    """

    def __init__(self, model: PreTrainedModel, layer: int | None, metric: str) -> None:
        encoder = encoder_of(model)
        self.metric = get_metric(metric)
        self._num_layers = encoder.num_layers
        self._totals = {"heads": encoder.num_heads, "neurons": encoder.num_neurons}  # of a layer
        self._searched = tuple(range(encoder.num_layers)) if layer is None else (layer,)
        self._present = present_units(model, self._searched)

    @property
    @abstractmethod
    def key(self) -> str:
        """What a score depends on besides the mask: equal keys mean equal scores."""

    def score(self, mask: Mask) -> float:
        """Return the metric with the mask's units removed."""
        return self.score_many([mask])[0]

    def score_many(self, masks: Sequence[Mask]) -> list[float]:
        """Return the metric of each mask; several share a pass if one does not fill the device.

        Raise `PlanError` if a mask names units that the layers never had, or leaves a layer none.
        """
        return self.metric.finish_all(self.statistics(masks)) if masks else []

    def statistics(self, masks: Sequence[Mask]) -> Tensor:
        """Return the statistics of each of at least one mask: (masks, ...)."""
        return self._statistics([self._read(mask) for mask in masks])

    @abstractmethod
    def _statistics(self, plans: Sequence[PruningPlan]) -> Tensor:
        """Return the statistics of masks that have been checked."""

    def _read(self, mask: Mask) -> PruningPlan:
        """Return a mask that has been checked."""
        if not isinstance(mask, PruningPlan):
            raise PlanError(
                f"a mask of the whole model must be a PruningPlan, found {mask!r:.60}; write such "
                "as PruningPlan(neurons={0: range(64)})"
            )
        mask.check(self._num_layers, *self._totals.values())
        for kind in KINDS:
            for layer, units in getattr(mask, kind).items():
                if layer not in self._searched:
                    raise PlanError(
                        f"layer {layer}: the scorer's masks must be of layer {self._searched[0]}; "
                        "leave other layers out"
                    )
                present = self._present[kind, layer]
                if present and len(units) >= len(present) and set(present).issubset(units):
                    raise PlanError(
                        f"layer {layer}: the mask removes all {len(present)} {kind} that are left; "
                        "at least one must stay"
                    )
        return mask

    def _combine(self, parts: Sequence[Tensor]) -> Tensor:
        """Return the statistics of all rows from those of parts, (masks, ...) each."""
        return torch.stack([self.metric.combine(of_mask) for of_mask in zip(*parts, strict=True)])


class MaskScorer(Scorer):
    """Scores masks of one layer: a plan of its heads, neurons or both, or a sequence of heads."""

    @property
    def layer(self) -> int:
        """The layer whose units masks remove."""
        return self._searched[0]

    @property
    def present(self) -> tuple[int, ...]:
        """The heads that the layer still has."""
        return self._present["heads", self.layer]

    def _read(self, mask: Mask) -> PruningPlan:
        if isinstance(mask, PruningPlan):
            return super()._read(mask)
        heads = set(mask)
        if not heads.issubset(self.present) or len(heads) >= max(1, len(self.present)):
            raise PlanError(
                f"layer {self.layer}: a mask must be some of the layer's heads "
                f"{list(self.present)}, but not all, found {list(mask)!s:.60}; name heads as the "
                "unpruned model numbers them, and leave one"
            )
        return PruningPlan({self.layer: heads})


def present_units(model: PreTrainedModel, layers: Sequence[int]) -> dict[Site, tuple[int, ...]]:
    """Return the units that each layer still has."""
    encoder = encoder_of(model)
    removed, num_neurons = encoder.removed, encoder.num_neurons
    return {
        (kind, layer): kept_units(total, getattr(removed, kind).get(layer, ()))
        for layer in layers
        for kind, total in (("heads", encoder.num_heads), ("neurons", num_neurons))
    }


def check_caution(metric: Metric, caution: float) -> None:
    """Raise `ConfigError` if caution is set but the metric has no standard error."""
    if caution and metric.by_row is None:
        raise ConfigError(
            f"reward.caution must be 0 where rewards are changes of {metric.name}, which is no "
            f"mean over rows, found {caution:g}; set it to 0, or reward.measure=smooth"
        )


def standard_errors(metric: Metric, start: Tensor, changed: Tensor) -> list[float]:
    """Return the standard error of the gain of each changed mask over the start.

    Both arguments are statistics of a metric that is a mean over rows: `start` (...) of one mask,
    `changed` (masks, ...). Scores of a row are correlated, so the error is that of the differences
    by row. With a single row it is 0.
    """
    assert metric.by_row is not None, f"{metric.name} is no mean over rows"
    before = metric.by_row(start)
    if len(before) < 2:
        return [0.0] * len(changed)
    errors = [(metric.by_row(each) - before).std() / math.sqrt(len(before)) for each in changed]
    found: list[float] = torch.stack(errors).tolist()
    return found
