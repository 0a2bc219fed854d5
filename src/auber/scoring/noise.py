"""How far what is gained by removing a head can be believed: a difference over so many rows has a standard error.

Of hundreds of masks the best seems better than it is, and heads that change much are the likeliest to seem good. `reward.caution`
asks of every removed head that it gains so many of these standard errors.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from auber.errors import ConfigError
from auber.metrics.task_metrics import Metric


def check_caution(metric: Metric, caution: float) -> None:
    """Raise `ConfigError` where the noise of a metric's gains cannot be told."""
    if caution and metric.by_row is None:
        raise ConfigError(
            f"reward.caution must be 0 where rewards are changes of {metric.name}, which is no mean over rows, "
            f"found {caution:g}; set it to 0, or reward.measure=smooth"
        )


def standard_error(metric: Metric, unpruned: Tensor, removed: Tensor) -> float:
    """The standard error of what a removed head gains over no head removed, mean over the heads; 0 where there is one row.

    Both are statistics of the metric, which must be a mean over rows: `unpruned` (...), `removed` (heads, ...), one head gone in
    each. Rows gain and lose with their labels, so the differences are taken row by row.
    """
    assert metric.by_row is not None, f"{metric.name} is no mean over rows"
    before = metric.by_row(unpruned)
    if len(before) < 2:
        return 0.0
    errors = [(metric.by_row(each) - before).std() / math.sqrt(len(before)) for each in removed]
    return float(torch.stack(errors).mean())
