"""What all scorers of one layer share, and the standard errors of what their scores show."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from auber.errors import ConfigError, PlanError
from auber.metrics.task_metrics import Metric


class MaskScorer(ABC):
    """Scores masks (sets of removed heads) of one layer, numbered as in the unpruned model.

    The score of a mask is a function of its statistics, which add up over parts of the rows.
    """

    def __init__(self, layer: int, present: Sequence[int], metric: Metric) -> None:
        self.layer, self.present = layer, tuple(present)
        self.metric, self._heads = metric, frozenset(present)

    @property
    @abstractmethod
    def key(self) -> str:
        """What a score depends on besides layer and mask: equal keys mean equal scores."""

    def score(self, removed: Sequence[int]) -> float:
        """Return the metric with these heads removed from the layer."""
        return self.score_many([removed])[0]

    def score_many(self, masks: Sequence[Sequence[int]]) -> list[float]:
        """Return the metric of each mask; several share a pass if one does not fill the device.

        Raise `PlanError` if a mask removes all heads or heads that the layer does not have.
        """
        return self.metric.finish_all(self.statistics(masks)) if masks else []

    def statistics(self, masks: Sequence[Sequence[int]]) -> Tensor:
        """Return the statistics of each of at least one mask: (masks, ...)."""
        self._require_masks(masks)
        return self._statistics(masks)

    @abstractmethod
    def _statistics(self, masks: Sequence[Sequence[int]]) -> Tensor:
        """Return the statistics of masks that have been checked."""

    def _require_masks(self, masks: Sequence[Sequence[int]]) -> None:
        for removed in masks:
            if not self._heads.issuperset(removed) or len(set(removed)) >= max(1, len(self._heads)):
                raise PlanError(
                    f"layer {self.layer}: a mask must be some of the layer's heads "
                    f"{list(self.present)}, but not all, found {list(removed)!s:.60}; name heads "
                    "as the unpruned model numbers them, and leave one"
                )

    def _combine(self, parts: Sequence[Tensor]) -> Tensor:
        """Return the statistics of all rows from those of parts, (masks, ...) each."""
        return torch.stack([self.metric.combine(of_mask) for of_mask in zip(*parts, strict=True)])


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
