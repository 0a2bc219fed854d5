"""Compare the sizes of a run with its unpruned model, on rows of train that no stage has seen.

A size is within the tolerance if the upper bound of its loss is. The bound is one-sided at 95 %: a
quantile of the paired difference under resampling of the rows (the bootstrap), which holds for
means over rows and for other metrics alike. Sizes are tried from large to small up to the first
that is not within the tolerance. In this fixed order the chance of a wrong choice stays at 5 %,
however many sizes are tried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from auber.config import Config
from auber.data.encoding import EncodedRows
from auber.data.task_types import get_task_type
from auber.metrics.task_metrics import Metric, get_metric
from auber.system.seeds import generator
from auber.training.evaluation import predict

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LEVEL = 0.95
_DRAWS = 2000
_ROUNDING = 1e-9  # points


class HeldOut:
    """The held-out rows, and how the unpruned model does on them."""

    def __init__(self, rows: EncodedRows, metric: str, config: Config) -> None:
        self._rows, self._metric = rows, get_metric(metric)
        self._tolerance, self._seed = config.size.tolerance or 0.0, config.seed
        self._reference: list[torch.Tensor] = []  # statistics of each row

    def compare(
        self, model: PreTrainedModel, load_unpruned: Callable[[], PreTrainedModel] | None = None
    ) -> dict[str, Any]:
        """Return score, loss and bound of a model, in points.

        The first model is the unpruned one, unless a resumed run has to load that.
        """
        found = row_statistics(model, self._rows, self._metric)
        if not self._reference:
            self._reference = found
            if load_unpruned is not None:
                self._reference = row_statistics(load_unpruned(), self._rows, self._metric)
        everything = np.arange(len(self._rows))
        score, unpruned = (
            _make_score(self._metric, each)(everything) for each in (found, self._reference)
        )
        bound = bound_loss(self._metric, self._reference, found, self._seed)
        return {
            "rows": len(self._rows),
            "score": score,
            "loss": 100 * (unpruned - score),
            "bound": bound,
            "is_within": bound <= self._tolerance + _ROUNDING,
        }


def bound_loss(
    metric: Metric, unpruned: list[torch.Tensor], pruned: list[torch.Tensor], seed: int
) -> float:
    """Return the points that the pruned model loses at most, at the level of 95 %."""
    random = generator(seed, "held-out bound")
    scores = [_make_score(metric, each) for each in (unpruned, pruned)]
    losses = []
    for _ in range(_DRAWS):
        rows = random.integers(0, len(pruned), len(pruned))
        losses.append(scores[0](rows) - scores[1](rows))
    return 100 * float(np.quantile(losses, LEVEL, method="higher"))


def row_statistics(model: PreTrainedModel, rows: EncodedRows, metric: Metric) -> list[torch.Tensor]:
    """Return the metric's statistics of each row, on the CPU."""
    logits = predict(model, rows).cpu()
    per_row = rows.lengths if get_task_type(rows.kind).reads_all else [1] * len(rows)
    cpu = torch.device("cpu")
    return [
        metric.statistics(own, rows.select([row]).truth(cpu))
        for row, own in enumerate(torch.split_with_sizes(logits, per_row))
    ]


def _make_score(metric: Metric, statistics: list[torch.Tensor]) -> Callable[[np.ndarray], float]:
    """Return a function from rows, some of them repeated, to their score."""
    if metric.exact:
        counts = torch.stack(statistics)
        return lambda rows: float(metric.finish(counts[torch.from_numpy(rows)].sum(0)))
    whole = torch.cat(statistics)
    if len(whole) == len(statistics):  # faster than to join the same rows again for every draw
        return lambda rows: float(metric.finish(whole[torch.from_numpy(rows)]))
    return lambda rows: float(metric.finish(torch.cat([statistics[row] for row in rows])))
