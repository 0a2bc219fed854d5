"""The metrics of tasks: how logits and labels become a score, and how scores of shards combine.

`compute(logits, truth)` is `finish(statistics(logits, truth))`. Statistics of several shards are
joined by `combine` before `finish`: counts are added, rows are concatenated. Counts give the same
bits however the rows are divided (`exact`); means, ranks and fits do not.

`truth` is what logits are compared with: a tensor of one label per row for sequence tasks, a
`TagTruth` for tokens, a `SpanTruth` for spans and the vectors of the unpruned model for embeddings.
For tokens and spans, the logits are packed: those of all tokens, row after row, without padding.
For embeddings, they are the vectors of the rows.

Contract: `compute` returns a float64 scalar on the logits' device without waiting for that device.
Higher is better. Values lie in [0, 1], correlations in [-1, 1]. An undefined value (0/0: no rows,
one class predicted, no variance) is 0, and so is every value on rows without what the metric
`needs`; there, every model scores the same, which `is_blind` tests. Predictions that are NaN give
NaN, except where classes are counted. Apple's MPS has no float64, so its logits move to the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from auber.errors import ConfigError, unknown_name
from auber.metrics.smooth import class_rows, explained_by_row, explained_share, tag_rows
from auber.metrics.spans import NO_SPAN, SpanTruth, exact_counts, overlaps
from auber.metrics.tags import TagTruth, entity_counts
from auber.metrics.vectors import cosines, pair_similarities, vector_rows

Truth = Tensor | TagTruth | SpanTruth

# Statistics of at most this many numbers are finished on the host. On a GPU, a smooth metric takes
# 1,000 operations, each of which takes microseconds to start; a CPU stops when the fit has
# converged, after 2 ms with 6,000 numbers.
_ON_HOST = 32_768

# A variance of predictions this small, relative to their mean square, is float32 rounding.
_NO_VARIANCE = 1e-12


@dataclass(frozen=True)
class Metric:
    """A measure of the outputs of a model against labels."""

    name: str
    compares: Literal["classes", "numbers", "tags", "spans", "vectors"]
    needs: str  # what some of the rows must have, or else every model scores 0 on them
    has_needs: Callable[[Any, int], Tensor]  # of the truth and the number of labels
    gather: Callable[[Tensor, Any], Tensor]
    finish: Callable[[Tensor], Tensor]
    exact: bool = True  # the statistics are counts, and shards are added
    reads_entities: bool = False  # the tags must follow IOB2
    by_row: Callable[[Tensor], Tensor] | None = None  # of statistics: the terms of a mean over rows

    def of_terms(self) -> Metric:
        """Return the metric whose statistics are the terms that `by_row` gives."""
        return replace(self, finish=_mean_share, by_row=Tensor.clone)

    @property
    def kind(self) -> str:
        """The name of the task type it scores."""
        kinds = {"tags": "tokens", "spans": "spans", "vectors": "embeddings"}
        return kinds.get(self.compares, "sequence")

    @property
    def is_regression(self) -> bool:
        """Whether the labels are numbers to predict rather than classes."""
        return self.compares == "numbers"

    def statistics(self, logits: Tensor, truth: Truth) -> Tensor:
        """Return all that the metric needs of these rows.

        Logits are (rows, classes), (rows,) or (rows, 1) for regression, (tokens, tags) for tags,
        (tokens, 2) for spans, and (rows, dimensions) for vectors.
        """
        if not self._fits(logits, truth):
            wanted = {
                "classes": "logits (rows, classes) and labels (rows,)",
                "numbers": "logits (rows,) or (rows, 1) and labels (rows,)",
                "tags": "logits (tokens, tags) and tagged words",
                "spans": "logits (tokens, 2) and spans of answers",
                "vectors": "vectors (rows, dimensions) and as many of the unpruned model",
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
            if not isinstance(truth, TagTruth) or (self.reads_entities and truth.types is None):
                return False
            return logits.ndim == 2
        if self.compares == "spans":
            return isinstance(truth, SpanTruth) and logits.ndim == 2 and logits.shape[1] == 2
        if self.compares == "vectors":
            return isinstance(truth, Tensor) and logits.ndim == 2 and truth.shape == logits.shape
        one_output = logits.ndim == 1 or (logits.ndim == 2 and logits.shape[1] == 1)
        fits = one_output == self.is_regression and logits.ndim <= 2
        return fits and isinstance(truth, Tensor) and truth.shape == logits.shape[:1]

    def is_blind(self, truth: Truth, num_labels: int) -> bool:
        """Return whether every model scores the same on rows with this truth; waits for a GPU."""
        return not bool(self.has_needs(truth, num_labels))

    def combine(self, shards: Sequence[Tensor]) -> Tensor:
        """Return the statistics of several shards as those of one."""
        return torch.stack(tuple(shards)).sum(0) if self.exact else torch.cat(tuple(shards))

    def finish_all(self, statistics: Tensor) -> list[float]:
        """Return the metric of each of the statistics (masks, ...); waits for a GPU once."""
        scores = torch.stack([self.finish(each) for each in settle(statistics)])
        found: list[float] = scores.tolist()
        return found

    def compute(self, logits: Tensor, truth: Truth) -> Tensor:
        """Return the metric of these rows, a float64 scalar on the logits' device."""
        return self.finish(self.statistics(logits, truth))


def settle(statistics: Tensor) -> Tensor:
    """Move small statistics (masks, ...) to the CPU, which finishes them sooner than a GPU."""
    return statistics.cpu() if statistics[0].numel() <= _ON_HOST else statistics


def get_metric(name: str) -> Metric:
    """Return the metric of that name."""
    if name not in METRICS:
        raise ConfigError(unknown_name("metric", name, METRICS))
    return METRICS[name]


def smooth_metric(name: str) -> str:
    """Return the name of the smooth metric for tasks that are scored by this one.

    It is a mean over rows and changes with every row's outputs, not only with decisions.
    """
    return _SMOOTH[get_metric(name).compares]


def predicts_one_class(logits: Tensor) -> bool:
    """Return whether several rows of logits (rows, classes) all get the same class."""
    predictions = logits.argmax(-1)
    return len(predictions) > 1 and bool(_is_one(predictions))


def predicts_one_number(logits: Tensor) -> bool:
    """Return whether several rows all get the same number, up to rounding."""
    values = logits.reshape(-1).double()
    return len(values) > 1 and bool(_is_flat(values))


def predicts_one_vector(vectors: Tensor) -> bool:
    """Return whether several rows all get the same vector, up to rounding."""
    values = vectors.double()
    return len(values) > 1 and bool(_is_flat(values, 0))


def confusion(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the confusion matrix, int64 (classes, classes), with a row for each true class."""
    classes = logits.shape[-1]
    # Not bincount, which on a GPU waits to learn the size of its result.
    cells = labels.long() * classes + logits.argmax(-1)  # (rows,)
    counts = torch.zeros(classes * classes, dtype=torch.int64, device=logits.device)
    return counts.scatter_add_(0, cells, torch.ones_like(cells)).view(classes, classes)


def _accuracy(matrix: Tensor) -> Tensor:
    counts = matrix.double()
    return _ratio(counts.diagonal().sum(), counts.sum())


def _f1(matrix: Tensor) -> Tensor:
    """Return the F1 of the second of two classes, or the mean of the classes' F1."""
    counts = matrix.double()
    hits = counts.diagonal()  # (classes,)
    scores = _ratio(2 * hits, counts.sum(0) + counts.sum(1))
    return scores[1] if len(scores) == 2 else scores.mean()


def _matthews(matrix: Tensor) -> Tensor:
    """Return Gorodkin's R_K, which for two classes is Matthews' coefficient."""
    counts = matrix.double()
    predicted, true = counts.sum(0), counts.sum(1)  # (classes,)
    rows = counts.sum()
    covariance = counts.diagonal().sum() * rows - predicted @ true
    spread = (rows**2 - predicted @ predicted).sqrt() * (rows**2 - true @ true).sqrt()
    return _ratio(covariance, spread).clamp(-1, 1)


def _paired(logits: Tensor, labels: Tensor) -> Tensor:
    """Return predictions and targets side by side: (rows, 2)."""
    return torch.stack((logits.reshape(-1).double(), labels.double()), dim=1)


def _pearson(pairs: Tensor) -> Tensor:
    # Centred first: a large common part, such as 1.7e9 in times, would cost all precision.
    x, y = (pairs - pairs.mean(0)).unbind(1)
    correlation = (x @ y) / ((x @ x).sqrt() * (y @ y).sqrt())
    is_none = _is_flat(pairs[:, 0]) | _is_one(pairs[:, 1])
    return torch.where(is_none, torch.zeros_like(correlation), correlation.clamp(-1, 1))


def _r_squared(pairs: Tensor) -> Tensor:
    """Return Pearson's correlation squared, or 0 if it is negative."""
    return _pearson(pairs).clamp(min=0).square()


def _r_squared_by_row(pairs: Tensor) -> Tensor:
    """Return 1 - residual² / variance for each row, under the best scale >= 0 and offset."""
    x, y = (pairs - pairs.mean(0)).unbind(1)
    scale = torch.where(_pearson(pairs) > 0, (x @ y) / (x @ x), 0.0)
    shares = 1 - (y - scale * x).square() * len(pairs) / (y @ y)
    shares = torch.where(_is_one(pairs[:, 1]), 0.0, shares)
    return torch.where(pairs.isfinite().all(), shares, torch.nan)


def _mean(values: Tensor) -> Tensor:
    return _ratio(values.sum(), torch.ones_like(values).sum())


def _mean_share(terms: Tensor) -> Tensor:
    return _mean(terms).clamp(0, 1)  # where nothing is explained, rounding may go below 0


def _is_flat(predictions: Tensor, dim: int | None = None) -> Tensor:
    """Return whether they do not vary, at all or along one dimension, up to rounding."""
    centred = predictions - predictions.mean(dim)
    return centred.square().sum() <= _NO_VARIANCE * predictions.square().sum()


def _is_one(values: Tensor) -> Tensor:
    """Return whether they are all equal, without rounding."""
    return (values == values[:1]).all()


def _spearman(pairs: Tensor) -> Tensor:
    """Return Pearson's correlation of the ranks."""
    x, y = pairs.unbind(1)
    return _pearson(torch.stack((_ranks(x), _ranks(y)), dim=1))


def _pair_spearman(rows: Tensor) -> Tensor:
    """Return Spearman's correlation of the similarities of near pairs; see `vector_rows`."""
    pairs = pair_similarities(rows)
    return _spearman(pairs) if len(pairs) else torch.zeros_like(rows[:1].sum(), dtype=torch.double)


def _ranks(values: Tensor) -> Tensor:
    """Return ranks from 1, with their mean for equal values; all NaN if any value is."""
    values = values.contiguous()
    ordered = values.sort().values
    before = torch.searchsorted(ordered, values, right=False)  # the number of smaller values
    through = torch.searchsorted(ordered, values, right=True)  # of smaller or equal ones
    ranks = (before + through + 1).double() / 2
    return torch.where(values.isnan().any(), torch.nan, ranks)


def _tag_counts(logits: Tensor, truth: TagTruth) -> Tensor:
    """Return the numbers of words with the right tag and of all words: int64 (2,)."""
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


# What rows must have so that a metric can distinguish models.


def _has_items(truth: Any, num_labels: int) -> Tensor:
    items = truth.tags if isinstance(truth, TagTruth) else truth
    return torch.tensor(len(items) > 0)


def _has_counted_class(labels: Tensor, num_labels: int) -> Tensor:
    # With two classes, F1 is that of class 1, which is 0 without rows of class 1.
    return (labels == 1).any() if num_labels == 2 else _has_items(labels, num_labels)


def _has_two_labels(truth: Any, num_labels: int) -> Tensor:
    return ~_is_one(truth.tags if isinstance(truth, TagTruth) else truth)


def _has_entity(truth: TagTruth, num_labels: int) -> Tensor:
    assert truth.types is not None, "tags without a scheme are refused before"
    return (truth.types[truth.tags] != 0).any()


def _has_answer(truth: SpanTruth, num_labels: int) -> Tensor:
    return (truth.spans != NO_SPAN).any()


def _has_pairs(vectors: Tensor, num_labels: int) -> Tensor:
    # Two pairs must differ.
    return torch.tensor(len(vectors) > 2) & ~_is_flat(vectors, 0)


# fmt: off
_ALL = (
    Metric("accuracy", "classes", "a row", _has_items, confusion, _accuracy),
    Metric("f1", "classes", "a row of class 1", _has_counted_class, confusion, _f1),
    Metric("matthews", "classes", "rows of two classes", _has_two_labels, confusion, _matthews),
    Metric(
        "explained", "classes", "rows of two classes", _has_two_labels, class_rows,
        explained_share, exact=False, by_row=explained_by_row,
    ),
    Metric(
        "pearson", "numbers", "two different targets", _has_two_labels, _paired, _pearson,
        exact=False,
    ),
    Metric(
        "r_squared", "numbers", "two different targets", _has_two_labels, _paired, _r_squared,
        exact=False, by_row=_r_squared_by_row,
    ),
    Metric(
        "spearman", "numbers", "two different targets", _has_two_labels, _paired, _spearman,
        exact=False,
    ),
    Metric("token_accuracy", "tags", "a word with a tag", _has_items, _tag_counts, _share),
    Metric(
        "entity_f1", "tags", "an entity", _has_entity, entity_counts, _entity_f1,
        reads_entities=True,
    ),
    Metric(
        "tag_explained", "tags", "words with two tags", _has_two_labels, tag_rows,
        explained_share, exact=False, by_row=explained_by_row,
    ),
    Metric("span_exact", "spans", "a row with an answer", _has_answer, exact_counts, _share),
    Metric(
        "span_f1", "spans", "a row with an answer", _has_answer, overlaps, _mean,
        exact=False, by_row=Tensor.clone,
    ),
    Metric(
        "cosine", "vectors", "a row", _has_items, cosines, _mean, exact=False,
        by_row=Tensor.clone,
    ),
    Metric(
        "pair_spearman", "vectors", "three rows with different vectors", _has_pairs, vector_rows,
        _pair_spearman, exact=False,
    ),
)
# fmt: on

METRICS = {metric.name: metric for metric in _ALL}

_SMOOTH = {
    "classes": "explained",
    "tags": "tag_explained",
    "numbers": "r_squared",
    "spans": "span_f1",  # the finest measure of spans
    "vectors": "cosine",
}
