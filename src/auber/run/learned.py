"""Whether a fine-tuned model has learned its task: otherwise pruning it says nothing.

It is measured on rows that the model was tuned on, because no others are left: a model that is no
better than the most frequent class there has learned nothing. What it explains of the labels
(`auber.metrics.smooth`) has to be above 0 with a one-sided confidence of 95 %. That also holds for
rare classes, where accuracy hardly differs from the most frequent class. For spans it is F1, which
a poor model passes too. A model that gives all rows the same answer has learned nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch import Tensor

from auber.data.encoding import EncodedRows
from auber.data.splits import Indices, draw_rows
from auber.metrics.tags import TagTruth
from auber.metrics.task_metrics import get_metric, smooth_metric
from auber.run.stage_record import LearnedRecord
from auber.training.evaluation import predict
from auber.training.outputs import outputs_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_MOST_ROWS = 2000
_QUANTILE = 1.645  # of the normal distribution: 95 % are below


def choose_rows(rows: Indices, seed: int) -> Indices:
    """Return the rows to measure on: all, or a random draw of them."""
    return draw_rows(rows, _MOST_ROWS, seed, "rows of the check")


def measure_learning(model: PreTrainedModel, rows: EncodedRows, metric: str) -> LearnedRecord:
    """Return whether a model has learned its task, measured on rows that it was tuned on."""
    logits, truth = predict(model, rows), rows.truth(model.device)
    rule, smooth = get_metric(metric), get_metric(smooth_metric(metric))
    one_answer = outputs_of(rows.kind, model).is_one_answer(logits, truth)
    assert smooth.by_row is not None
    terms = smooth.by_row(smooth.statistics(logits, truth))
    error = float(terms.std()) / math.sqrt(len(terms)) if len(terms) > 1 else math.inf
    score, majority = float(rule.compute(logits, truth)), None
    if rule.compares in ("classes", "tags"):
        answers = truth.tags if isinstance(truth, TagTruth) else truth
        assert isinstance(answers, Tensor)
        majority = float(answers.long().bincount().max()) / max(1, len(answers))
    return LearnedRecord(
        learned=not one_answer and float(terms.mean()) > _QUANTILE * error,
        one_answer=one_answer,
        score=score if math.isfinite(score) else None,
        majority=majority,
        rows=len(rows),
    )


def describe_failure(found: LearnedRecord, metric: str) -> str:
    """Return what a model that has not learned its task does."""
    rows = f"{found.rows} of the rows it was tuned on"
    what = f"gives the same answer to all of {rows}"
    if not found.one_answer:
        what = f"is no better than a constant answer on {rows}"
    numbers = [] if found.score is None else [f"{metric} {100 * found.score:.1f}"]
    if found.majority is not None:
        numbers.append(f"the most frequent class has {100 * found.majority:.1f} %")
    return f"the fine-tuned model {what}" + (f" ({', '.join(numbers)})" if numbers else "")
