"""The metrics: what each is computed from, for which labels, and how scores of shards combine.

A metric is a function of its statistics: `compute(logits, truth)` is `finish(statistics(logits, truth))`. Those of
several shards are joined by `combine` before `finish`: counts are added (`additive`), rows are put one after another, where means,
ranks or the best scale depend on all of them, or what each gives is asked for (`by_row`). Counts come to the same bits
however the rows are dealt (`exact`), fractions do not.

What logits are compared with, the truth, is a tensor of one label a row for tasks of kind sequence, a `TagTruth` for
tokens and a `SpanTruth` for spans; for these two the logits are those of all tokens, row after row without padding.

Contract: `compute` returns a float64 scalar on the logits' device and never waits for that device; higher is always
better; the value lies in [0, 1], for correlations in [-1, 1]. A value that is undefined (0/0: no rows, one class
predicted, no variance) is 0.0 by definition, and so is every value on rows without what the metric `needs`: there no model
scores otherwise than any other, which `is_blind` tells beforehand. Correlations of predictions that are not numbers, and what
such logits explain, are not numbers either. Apple's MPS has no float64: there, and only there, the work is done on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from auber.errors import ConfigError, unknown_name
from auber.metrics.smooth import class_rows, explained_by_row, explained_share, tag_rows
from auber.metrics.spans import NO_SPAN, SpanTruth, exact_counts, overlaps
from auber.metrics.tags import TagTruth, entity_counts

Truth = Tensor | TagTruth | SpanTruth

# Numbers of a statistic that are finished on the host at most. A smooth metric is fitted in 1,000 operations on a GPU, which takes some
# microseconds to start each however few numbers it has; a CPU stops when it has converged, after 2 ms with 6,000 numbers.
_ON_HOST = 32_768

# A variance of predictions this small beside their mean square is the rounding of a model that predicts one number in float32.
_NO_VARIANCE = 1e-12


@dataclass(frozen=True)
class Metric:
    """One way to compare the outputs of a model with labels."""

    name: str
    compares: Literal["classes", "numbers", "tags", "spans"]
    doc: str
    needs: str  # what some of the rows must have, or every model scores 0 on them
    has_needs: Callable[[Any, int], Tensor]  # of truth and number of labels
    gather: Callable[[Tensor, Any], Tensor]
    finish: Callable[[Tensor], Tensor]
    additive: bool = True
    exact: bool = True
    reads_entities: bool = False  # the tags must follow IOB2
    by_row: Callable[[Tensor], Tensor] | None = (
        None  # of the statistics: what each row, or word, gives to a mean
    )

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
            followed = isinstance(truth, TagTruth) and (
                truth.types is not None or not self.reads_entities
            )
            return followed and logits.ndim == 2
        if self.compares == "spans":
            return isinstance(truth, SpanTruth) and logits.ndim == 2 and logits.shape[1] == 2
        one_output = logits.ndim == 1 or (logits.ndim == 2 and logits.shape[1] == 1)
        fits = one_output == self.is_regression and logits.ndim <= 2
        return fits and isinstance(truth, Tensor) and truth.shape == logits.shape[:1]

    def is_blind(self, truth: Truth, num_labels: int) -> bool:
        """Whether every model of so many labels scores the same on rows with this truth; waits for their device."""
        return not bool(self.has_needs(truth, num_labels))

    def combine(self, shards: Sequence[Tensor]) -> Tensor:
        """The statistics of several shards as those of one."""
        return torch.stack(tuple(shards)).sum(0) if self.additive else torch.cat(tuple(shards))

    def finish_all(self, statistics: Tensor) -> list[float]:
        """The metric of each of several statistics, at least one: (masks, ...); their device is waited for once."""
        scores: list[float] = torch.stack(
            [self.finish(each) for each in settle(statistics)]
        ).tolist()
        return scores

    def compute(self, logits: Tensor, truth: Truth) -> Tensor:
        """The metric of these rows, a float64 scalar on the logits' device."""
        return self.finish(self.statistics(logits, truth))


def settle(statistics: Tensor) -> Tensor:
    """Statistics (masks, ...) where what they are a function of is computed soonest: small ones on the host."""
    return statistics.cpu() if statistics[0].numel() <= _ON_HOST else statistics


def get_metric(name: str) -> Metric:
    """The metric of that name."""
    if name not in METRICS:
        raise ConfigError(unknown_name("metric", name, METRICS))
    return METRICS[name]


def smooth_metric(name: str) -> str:
    """The metric of a smooth reward for tasks scored by this one: it moves with every row, not with decisions alone.

    It is a mean of what each row gives. The overlap is the finest measure there is of spans.
    """
    return _SMOOTH[get_metric(name).compares]


def predicts_one_class(logits: Tensor) -> bool:
    """Whether all of several rows of logits (rows, classes) get the same class, so that the score says nothing of the rows."""
    predictions = logits.argmax(-1)
    return len(predictions) > 1 and bool((predictions == predictions[:1]).all())


def predicts_one_number(logits: Tensor) -> bool:
    """Whether all of several rows get the same number, up to rounding: where a correlation is 0 by definition."""
    values = logits.reshape(-1).double()
    return len(values) > 1 and bool(_is_flat(values))


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


def _pearson(pairs: Tensor) -> Tensor:
    # Less their means: what is common to all targets, such as 1.7e9 of a time, would drown the rest.
    x, y = (pairs - pairs.mean(0)).unbind(1)
    correlation = (x @ y) / ((x @ x).sqrt() * (y @ y).sqrt())
    is_none = _is_flat(pairs[:, 0]) | _is_one(pairs[:, 1])
    return torch.where(is_none, torch.zeros_like(correlation), correlation.clamp(-1, 1))


def _r_squared(pairs: Tensor) -> Tensor:
    """Pearson's correlation squared, 0 where it is negative."""
    return _pearson(pairs).clamp(min=0).square()


def _r_squared_by_row(pairs: Tensor) -> Tensor:
    """1 less the squared residual of each row beside the targets' variance, under the best scale, not below 0, and offset."""
    x, y = (pairs - pairs.mean(0)).unbind(1)
    scale = torch.where(_pearson(pairs) > 0, (x @ y) / (x @ x), 0.0)
    shares = 1 - (y - scale * x).square() * len(pairs) / (y @ y)
    shares = torch.where(_is_one(pairs[:, 1]), 0.0, shares)
    return torch.where(pairs.isfinite().all(), shares, torch.nan)


def _mean(values: Tensor) -> Tensor:
    return _ratio(values.sum(), torch.ones_like(values).sum())


def _is_flat(predictions: Tensor) -> Tensor:
    """Whether they do not vary, up to rounding."""
    return (
        predictions - predictions.mean()
    ).square().sum() <= _NO_VARIANCE * predictions.square().sum()


def _is_one(targets: Tensor) -> Tensor:
    """Whether they are all the same. They are given and not computed: no rounding makes them differ."""
    return (targets == targets[:1]).all()


def _spearman(pairs: Tensor) -> Tensor:
    """Pearson's correlation of the ranks."""
    x, y = pairs.unbind(1)
    return _pearson(torch.stack((_ranks(x), _ranks(y)), dim=1))


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


# --- what rows must have for a metric to tell models apart ---------------------------------------------------------------


def _has_items(truth: Any, num_labels: int) -> Tensor:
    items = truth.tags if isinstance(truth, TagTruth) else truth
    return torch.tensor(len(items) > 0)


def _has_counted_class(labels: Tensor, num_labels: int) -> Tensor:
    """With two classes the F1 is that of class 1, which is 0 where no row is of it."""
    return (labels == 1).any() if num_labels == 2 else _has_items(labels, num_labels)


def _has_two_labels(labels: Tensor, num_labels: int) -> Tensor:
    return (labels != labels[:1]).any()


def _has_two_tags(truth: TagTruth, num_labels: int) -> Tensor:
    return _has_two_labels(truth.tags, num_labels)


def _has_entity(truth: TagTruth, num_labels: int) -> Tensor:
    assert truth.types is not None, "tags without a scheme are refused before"
    return (truth.types[truth.tags] != 0).any()


def _has_answer(truth: SpanTruth, num_labels: int) -> Tensor:
    return (truth.spans != NO_SPAN).any()


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "accuracy",
            "classes",
            "share of the rows whose class is predicted",
            "a row",
            _has_items,
            confusion,
            _accuracy,
        ),
        Metric(
            "f1",
            "classes",
            "F1 of the second of two classes, in their order; of more classes the mean of theirs",
            "a row of class 1",
            _has_counted_class,
            confusion,
            _f1,
        ),
        Metric(
            "matthews",
            "classes",
            "Matthews correlation, R_K with more classes",
            "rows of two classes",
            _has_two_labels,
            confusion,
            _matthews,
        ),
        Metric(
            "explained",
            "classes",
            "share of the labels' entropy that the logits explain under the best scale and biases (McFadden's R squared)",
            "rows of two classes",
            _has_two_labels,
            class_rows,
            explained_share,
            additive=False,
            exact=False,
            by_row=explained_by_row,
        ),
        Metric(
            "pearson",
            "numbers",
            "Pearson's correlation of predictions and targets",
            "two different targets",
            _has_two_labels,
            _paired,
            _pearson,
            additive=False,
            exact=False,
        ),
        Metric(
            "r_squared",
            "numbers",
            "share of the targets' variance that the predictions explain under the best scale and offset",
            "two different targets",
            _has_two_labels,
            _paired,
            _r_squared,
            additive=False,
            exact=False,
            by_row=_r_squared_by_row,
        ),
        Metric(
            "spearman",
            "numbers",
            "Pearson's correlation of the ranks",
            "two different targets",
            _has_two_labels,
            _paired,
            _spearman,
            additive=False,
            exact=False,
        ),
        Metric(
            "token_accuracy",
            "tags",
            "share of the words whose tag is predicted",
            "a word with a tag",
            _has_items,
            _tag_counts,
            _share,
        ),
        Metric(
            "entity_f1",
            "tags",
            "F1 of whole entities, first word, last word and type, over IOB2 tags",
            "an entity",
            _has_entity,
            entity_counts,
            _entity_f1,
            reads_entities=True,
        ),
        Metric(
            "tag_explained",
            "tags",
            "share of the tags' entropy that the logits of the words explain, as `explained`",
            "words with two tags",
            _has_two_tags,
            tag_rows,
            explained_share,
            additive=False,
            exact=False,
            by_row=explained_by_row,
        ),
        Metric(
            "span_exact",
            "spans",
            "share of the rows whose best span is a true one",
            "a row with an answer",
            _has_answer,
            exact_counts,
            _share,
        ),
        Metric(
            "span_f1",
            "spans",
            "mean F1 of the tokens of best and true span",
            "a row with an answer",
            _has_answer,
            overlaps,
            _mean,
            additive=False,
            exact=False,
            by_row=Tensor.clone,
        ),
    )
}

_SMOOTH = {
    "classes": "explained",
    "tags": "tag_explained",
    "numbers": "r_squared",
    "spans": "span_f1",
}
