"""From statistics to a score: the metric's value, or what is left of a gain when its noise is taken off.

With `caution` c a mask scores what the unpruned model does, plus the mean of what it gains row by row, less c standard errors of
that mean. Removed heads make rows gain and lose by chance, more of them make them differ more, and among hundreds of masks
the best seems better than it is: c standard errors are asked for before a difference counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from auber.errors import ConfigError
from auber.metrics import Metric


def check_caution(metric: Metric, caution: float) -> None:
    """Raise `ConfigError` where the noise of a metric's gains cannot be told."""
    if caution and metric.by_row is None:
        raise ConfigError(
            f"reward.caution must be 0 where rewards are changes of {metric.name}, which is no mean over rows, "
            f"found {caution:g}; set reward.measure=smooth"
        )


class Judge:
    """Scores of masks of one layer; `unpruned` gives the statistics of none removed, asked for where there is caution."""

    def __init__(self, metric: Metric, caution: float, unpruned: Callable[[], Tensor]) -> None:
        check_caution(metric, caution)
        self._metric, self._caution, self._unpruned = metric, caution, unpruned
        self._whole: tuple[Tensor, Tensor] | None = None  # the unpruned model's score, and by row

    def key(self, key: str) -> str:
        """The scorer's key, with what the judge adds to it."""
        return f"{key}-caution-{self._caution:g}" if self._caution else key

    def scores(self, statistics: Iterable[Tensor]) -> list[float]:
        """The score of each mask."""
        values: list[float] = torch.stack([self._score(each) for each in statistics]).tolist()
        return values

    def _score(self, statistics: Tensor) -> Tensor:
        by_row = self._metric.by_row
        if not self._caution or by_row is None:
            return self._metric.finish(statistics)
        if self._whole is None:
            unpruned = self._unpruned()
            self._whole = self._metric.finish(unpruned), by_row(unpruned)
        score, rows = self._whole
        gains = by_row(statistics) - rows
        noise = gains.std() / math.sqrt(len(gains)) if len(gains) > 1 else torch.zeros_like(score)
        return score + gains.mean() - self._caution * noise
