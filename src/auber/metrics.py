"""The metrics: what each is computed from, for which labels, and how scores of shards combine.

A metric is a function of its statistics: `compute(logits, truth)` is `finish(statistics(logits, truth))`. Those of
several shards are joined by `combine` before `finish`: counts and sums are added (`additive`), Spearman's rows are
put one after another, because ranks depend on all rows. Counts come to the same bits however the rows are dealt
(`exact`), sums of fractions do not.

What logits are compared with, the truth, is a tensor of one label a row for tasks of kind sequence, a `TagTruth` for
tokens and a `SpanTruth` for spans; for these two the logits are those of all tokens, row after row without padding.

Contract: `compute` returns a float64 scalar on the logits' device and never waits for that device; higher is always
better; the value lies in [0, 1], for correlations in [-1, 1]. A value that is undefined (0/0: no rows, one class
predicted, no variance) is 0.0 by definition. Apple's MPS has no float64: there, and only there, the work is done on the
CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from auber.errors import ConfigError, unknown_name
from auber.spans import SpanTruth, exact_counts, overlap_sums
from auber.tags import TagTruth, entity_counts

Truth = Tensor | TagTruth | SpanTruth

# A variance this small beside the mean square is the rounding error of equal float32 values summed in float64.
_NO_VARIANCE = 1e-12


@dataclass(frozen=True)
class Metric:
    """One way to compare the outputs of a model with labels."""

    name: str
    compares: Literal["classes", "numbers", "tags", "spans"]
    doc: str
    gather: Callable[[Tensor, Any], Tensor]
    finish: Callable[[Tensor], Tensor]
    additive: bool = True
    exact: bool = True
    reads_entities: bool = False  # the tags must follow IOB2

    @property
    def kind(self) -> str:
        """The kind of task it scores."""
        return {"tags": "tokens", "spans": "spans"}.get(self.compares, "sequence")

    @property
    def is_regression(self) -> bool:
        """Whether the labels are numbers to predict rather than classes."""
        return self.compares == "numbers"

    def statistics(self, logits: Tensor, truth: Truth) -> Tensor:
        """All that the metric needs of these rows.

        Logits are (rows, classes) or, for regression, (rows,) or (rows, 1); (tokens, tags), and (tokens, 2) for spans.
        """
        if not self._fits(logits, truth):
            wanted = {
                "classes": "logits (rows, classes) and labels (rows,)",
                "numbers": "logits (rows,) or (rows, 1) and labels (rows,)",
                "tags": "logits (tokens, tags) and tagged words",
                "spans": "logits (tokens, 2) and spans of answers",
            }[self.compares]
            found = tuple(truth.shape) if isinstance(truth, Tensor) else type(truth).__name__
            raise ConfigError(
                f"metric '{self.name}' needs {wanted}, found {tuple(logits.shape)} and {found}; "
                "choose a metric that fits the task"
            )
        if logits.device.type == "mps":
            logits, truth = logits.cpu(), truth.to("cpu")
        return self.gather(logits.detach(), truth)

    def _fits(self, logits: Tensor, truth: Truth) -> bool:
        if self.compares == "tags":
            followed = isinstance(truth, TagTruth) and (truth.types is not None or not self.reads_entities)
            return followed and logits.ndim == 2
        if self.compares == "spans":
            return isinstance(truth, SpanTruth) and logits.ndim == 2 and logits.shape[1] == 2
        one_output = logits.ndim == 1 or (logits.ndim == 2 and logits.shape[1] == 1)
        fits = one_output == self.is_regression and logits.ndim <= 2
        return fits and isinstance(truth, Tensor) and truth.shape == logits.shape[:1]

    def combine(self, shards: Sequence[Tensor]) -> Tensor:
        """The statistics of several shards as those of one."""
        return torch.stack(tuple(shards)).sum(0) if self.additive else torch.cat(tuple(shards))

    def compute(self, logits: Tensor, truth: Truth) -> Tensor:
        """The metric of these rows, a float64 scalar on the logits' device."""
        return self.finish(self.statistics(logits, truth))


def get_metric(name: str) -> Metric:
    """The metric of that name."""
    if name not in METRICS:
        raise ConfigError(unknown_name("metric", name, METRICS))
    return METRICS[name]


def majority_share(labels: Tensor) -> float:
    """The share of the most frequent class: the accuracy of always answering it."""
    if not len(labels):
        return 0.0
    return float(torch.unique(labels, return_counts=True)[1].max()) / len(labels)


def predicts_one_class(logits: Tensor) -> bool:
    """Whether every row of logits (rows, classes) gets the same class, so that the score says nothing of the rows."""
    predictions = logits.argmax(-1)
    return bool((predictions == predictions[:1]).all())


def confusion(logits: Tensor, labels: Tensor) -> Tensor:
    """The rows by class and predicted class: an int64 matrix (classes, classes), a row for each true class."""
    classes = logits.shape[-1]
    # scatter_add_ and not bincount: on a GPU bincount waits to learn how long its result will be.
    cells = labels.long() * classes + logits.argmax(-1)  # (rows,)
    counts = torch.zeros(classes * classes, dtype=torch.int64, device=logits.device)
    return counts.scatter_add_(0, cells, torch.ones_like(cells)).view(classes, classes)


def _accuracy(matrix: Tensor) -> Tensor:
    counts = matrix.double()
    return _ratio(counts.diagonal().sum(), counts.sum())


def _f1(matrix: Tensor) -> Tensor:
    counts = matrix.double()
    hits = counts.diagonal()  # (classes,)
    scores = _ratio(2 * hits, counts.sum(0) + counts.sum(1))
    return scores[1] if len(scores) == 2 else scores.mean()


def _matthews(matrix: Tensor) -> Tensor:
    """Gorodkin's R_K, which for two classes is Matthews' coefficient."""
    counts = matrix.double()
    predicted, true = counts.sum(0), counts.sum(1)  # (classes,)
    rows = counts.sum()
    covariance = counts.diagonal().sum() * rows - predicted @ true
    spread = (rows**2 - predicted @ predicted).sqrt() * (rows**2 - true @ true).sqrt()
    return _ratio(covariance, spread).clamp(-1, 1)


def _paired(logits: Tensor, labels: Tensor) -> Tensor:
    """Predictions and targets side by side: (rows, 2)."""
    return torch.stack((logits.reshape(-1).double(), labels.double()), dim=1)


def _sums(logits: Tensor, labels: Tensor) -> Tensor:
    """Number of rows, sums of x and of y, of squares and of products: (6,)."""
    x, y = _paired(logits, labels).unbind(1)
    return torch.stack((torch.ones_like(x).sum(), x.sum(), y.sum(), x @ x, y @ y, x @ y))


def _pearson(sums: Tensor) -> Tensor:
    rows, x, y, xx, yy, xy = sums.unbind()
    spread_x, spread_y = rows * xx - x * x, rows * yy - y * y
    flat = (spread_x <= _NO_VARIANCE * rows * xx) | (spread_y <= _NO_VARIANCE * rows * yy)
    correlation = (rows * xy - x * y) / (spread_x.sqrt() * spread_y.sqrt())
    return torch.where(flat, torch.zeros_like(rows), correlation.clamp(-1, 1))


def _spearman(pairs: Tensor) -> Tensor:
    """Pearson's correlation of the ranks."""
    x, y = pairs.unbind(1)
    return _pearson(_sums(_ranks(x), _ranks(y)))


def _ranks(values: Tensor) -> Tensor:
    """Ranks from 1, equal values sharing the mean of theirs; all NaN if any value is."""
    values = values.contiguous()
    ordered = values.sort().values
    before = torch.searchsorted(ordered, values, right=False)  # how many are smaller
    through = torch.searchsorted(ordered, values, right=True)  # how many are smaller or equal
    ranks = (before + through + 1).double() / 2
    return torch.where(values.isnan().any(), torch.nan, ranks)


def _tag_counts(logits: Tensor, truth: TagTruth) -> Tensor:
    """Words whose tag is predicted, and all words: int64 (2,)."""
    right = logits.index_select(0, truth.places).argmax(-1) == truth.tags  # (words,)
    return torch.stack((right.sum(), torch.ones_like(right).sum()))


def _share(counts: Tensor) -> Tensor:
    part, whole = counts.double().unbind()
    return _ratio(part, whole)


def _entity_f1(counts: Tensor) -> Tensor:
    right, found, there = counts.double().unbind()
    return _ratio(2 * right, found + there)


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    return torch.where(whole == 0, torch.zeros_like(whole), part / whole)


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy", "classes", "share of the rows whose class is predicted", confusion, _accuracy),
        Metric("f1", "classes", "F1 of class 1; with more than two classes their mean", confusion, _f1),
        Metric("matthews", "classes", "Matthews correlation, R_K with more classes", confusion, _matthews),
        Metric("pearson", "numbers", "Pearson's correlation of predictions and targets", _sums, _pearson, exact=False),
        Metric(
            "spearman",
            "numbers",
            "Pearson's correlation of the ranks",
            _paired,
            _spearman,
            additive=False,
            exact=False,
        ),
        Metric("token_accuracy", "tags", "share of the words whose tag is predicted", _tag_counts, _share),
        Metric(
            "entity_f1",
            "tags",
            "F1 of whole entities, first word, last word and type, over IOB2 tags",
            entity_counts,
            _entity_f1,
            reads_entities=True,
        ),
        Metric("span_exact", "spans", "share of the rows whose best span is a true one", exact_counts, _share),
        Metric(
            "span_f1",
            "spans",
            "mean F1 of the tokens of best and true span",
            overlap_sums,
            _share,
            exact=False,
        ),
    )
}
