"""What all scorers of one layer's masks share: a mask is looked at, its statistics are asked for, the metric is made of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch

from auber.errors import PlanError
from auber.metrics.task_metrics import Metric


class MaskScorer(ABC):
    """Scores sets of removed heads of one layer; heads are numbered as in the unpruned model."""

    def __init__(self, layer: int, present: Sequence[int], metric: Metric) -> None:
        self.layer, self.present = layer, tuple(present)
        self._metric, self._heads = metric, frozenset(present)

    @property
    @abstractmethod
    def key(self) -> str:
        """What a score depends on beside layer and mask: equal keys, equal scores."""

    def score(self, removed: Sequence[int]) -> float:
        """The metric with these heads removed from the layer; `PlanError` where it has not got them, or has no others."""
        return self.score_many([removed])[0]

    def score_many(self, masks: Sequence[Sequence[int]]) -> list[float]:
        """The metric for each of several sets of removed heads; several share a pass where one does not fill the device."""
        return self._metric.finish_all(self.statistics(masks)) if masks else []

    def statistics(self, masks: Sequence[Sequence[int]]) -> torch.Tensor:
        """What the metric is a function of, for each of at least one mask."""  # (masks, ...)
        self._require_masks(masks)
        return self._statistics(masks)

    @abstractmethod
    def _statistics(self, masks: Sequence[Sequence[int]]) -> torch.Tensor:
        """The same of masks that the layer can lose."""

    def _require_masks(self, masks: Sequence[Sequence[int]]) -> None:
        for removed in masks:
            if not self._heads.issuperset(removed) or len(set(removed)) >= max(1, len(self._heads)):
                raise PlanError(
                    f"layer {self.layer}: a mask must be some of the layer's heads {list(self.present)}, but not all, found "
                    f"{list(removed)!s:.60}; name heads as the unpruned model numbers them, and leave one"
                )

    def _joined(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """The statistics of several parts of the rows, (masks, ...) each, as those of all."""
        return torch.stack([self._metric.combine(of_mask) for of_mask in zip(*parts, strict=True)])
