"""The bound of what a size loses, against textbook formulas, and how often it is too low."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from auber.metrics.task_metrics import get_metric
from auber.run.held_out import HeldOut, bound_loss, row_statistics
from auber.training.evaluation import evaluate_rows
from tests.small import small_config, small_rows, small_start


def one_row_each(metric, right, labels):
    """Return the statistics of each row, from whether its answer is right."""
    logits = torch.eye(2)[torch.where(torch.from_numpy(right), labels, 1 - labels)]
    return [metric.statistics(logits[i : i + 1], labels[i : i + 1]) for i in range(len(labels))]


def draw(random, rows, lost, gained):
    """Return whether two models are right about each row."""
    labels = torch.tensor(random.integers(0, 2, rows))
    kind = random.random(rows)
    unpruned = (kind < 0.7) | (kind > 1 - lost)
    pruned = (kind < 0.7) | ((kind > 0.7) & (kind < 0.7 + gained))
    return labels, unpruned, pruned


def test_for_a_mean_over_rows_it_is_about_the_t_bound():
    random, metric = np.random.default_rng(0), get_metric("accuracy")
    labels, unpruned, pruned = draw(random, 400, 0.06, 0.04)
    found = bound_loss(
        metric, one_row_each(metric, unpruned, labels), one_row_each(metric, pruned, labels), 0
    )
    differences = 100.0 * (unpruned.astype(float) - pruned.astype(float))
    expected = differences.mean() + 1.6487 * differences.std(ddof=1) / math.sqrt(400)
    assert found == pytest.approx(expected, abs=0.3)


@pytest.mark.parametrize("metric", ["accuracy", "matthews"])
def test_it_is_rarely_below_the_true_loss(metric):
    random, rule = np.random.default_rng(1), get_metric(metric)
    true = {"accuracy": 4.0, "matthews": 8.0}[metric]  # 8 % lost, 4 % gained; halves of classes
    below = 0
    for seed in range(60):
        labels, unpruned, pruned = draw(random, 300, 0.08, 0.04)
        statistics = (one_row_each(rule, each, labels) for each in (unpruned, pruned))
        below += bound_loss(rule, *statistics, seed) < true
    assert below <= 8  # of 60 at 5 %; more in 1 of 400 repetitions of this test


def test_rows_are_scored_as_together():
    model, _ = small_start()
    rows, metric = small_rows(), get_metric("matthews")
    held_out = HeldOut(rows, "matthews", small_config(size__tolerance=5.0))
    first = held_out.compare(model.eval())
    assert first["score"] == pytest.approx(evaluate_rows(model, rows, "matthews").score)
    assert (first["loss"], first["bound"], first["is_within"]) == (0, 0, True)
    assert len(row_statistics(model, rows, metric)) == len(rows)
    other, _ = small_start()
    with torch.no_grad():
        other.classifier.weight.neg_()
    second = held_out.compare(other.eval())
    assert second["loss"] == pytest.approx(100 * (first["score"] - second["score"]))
    assert second["bound"] > second["loss"]
