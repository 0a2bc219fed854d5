"""Masked rows are scored as the pruned model scores them, and only by who may."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from auber.devices import Hardware
from auber.evaluation import predict
from auber.metrics import get_metric
from auber.plan import PruningPlan
from auber.surgery import remove_heads
from experiments.masked import MaskedRows
from experiments.search import VARIANTS, Walk
from experiments.subject import (
    MEASURES,
    calibrated_likelihood,
    calibrated_rows,
    make_folds,
    measure,
    measures,
    soft_metric,
)
from tests.small import small_rows, small_start

CPU = Hardware(torch.device("cpu"), "float32", 1)


def test_masks_are_scored_as_pruned_models_are():
    model, rows = small_start()[0], small_rows(40)
    masks = [(), (1,), (0, 3)]
    parts = [(model, rows.select(range(25))), (model, rows.select(range(25, 40)))]
    found = MaskedRows(parts, 1, "accuracy", CPU).scores(MEASURES, masks)
    for mask, scores in zip(masks, found, strict=True):
        pruned = copy.deepcopy(model)
        if mask:
            remove_heads(pruned, PruningPlan({1: mask}))
        assert 100 * scores == pytest.approx(measures(predict(pruned, rows), rows.labels, "accuracy"), abs=1e-4)


def test_one_score_is_one_of_many():
    masked = MaskedRows([(small_start()[0], small_rows(20))], 0, "accuracy", CPU)
    assert masked.score("soft", (2,)) == pytest.approx(masked.scores(["soft"], [(), (2,)])[1, 0])


@pytest.mark.parametrize("metric", ["accuracy", "f1", "matthews"])
def test_a_sure_model_has_its_metric_as_soft_metric(metric):
    labels = torch.tensor([0, 1, 1, 0, 1, 0])
    logits = torch.nn.functional.one_hot(torch.tensor([0, 1, 0, 0, 1, 1]), 2) * 100.0
    assert float(soft_metric(logits, labels, metric)) == pytest.approx(
        float(get_metric(metric).compute(logits, labels))
    )


def test_an_unsure_model_is_half_right():
    assert float(measure("soft", torch.zeros(8, 2), torch.arange(8) % 2, "accuracy")) == pytest.approx(0.5)
    assert float(measure("likelihood", torch.zeros(8, 2), torch.arange(8) % 2, "accuracy")) == pytest.approx(-np.log(2))


@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_calibrated_likelihood_knows_neither_scale_nor_bias(num_classes):
    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(num_classes, (400,), generator=draw)
    logits = torch.randn(400, num_classes, generator=draw) + torch.nn.functional.one_hot(labels, num_classes)
    found = calibrated_likelihood(logits, labels)
    for other in (3 * logits, 0.3 * logits + torch.arange(num_classes)):
        assert float(calibrated_likelihood(other, labels)) == pytest.approx(float(found), abs=1e-6)

    def likelihood(fit):
        surely = (fit[0] * logits.double() + torch.tensor(fit[1:])).log_softmax(-1)
        return float(surely[range(400), labels].mean())

    best = minimize(lambda fit: -likelihood(fit), [1.0] + [0.0] * num_classes, method="BFGS").x
    assert float(found) == pytest.approx(likelihood(best), abs=1e-5)


def test_logits_that_mislead_tell_nothing():
    labels = torch.tensor([0, 1, 1, 1] * 25)
    logits = -3.0 * torch.nn.functional.one_hot(labels, 2)
    logits[::7] *= -1
    expected = 0.25 * np.log(0.25) + 0.75 * np.log(0.75)
    assert float(measure("calibrated", logits, labels, "accuracy")) == pytest.approx(expected)


def test_folds_are_even_and_follow_the_seed():
    folds = make_folds(100, 3, 5)
    assert sorted(np.bincount(folds)) == [33, 33, 34]
    assert (folds == make_folds(100, 3, 5)).all()
    assert (folds != make_folds(100, 3, 6)).any()


def test_a_row_is_rewarded_by_the_scout_that_never_saw_it():
    class Named:
        def __init__(self, rows):
            self.rows = rows

        def select(self, rows):
            return tuple(rows)

    folds, scouts = make_folds(9, 3, 0), ["a", "b", "c"]
    subject = type("Subject", (), {"rows": Named(None)})()
    crossed = Walk(subject, VARIANTS["crossed-calibrated-rewound"], "model", scouts, folds)
    parts = crossed.parts(tuple(range(9)), 0)
    assert [scout for scout, _ in parts] == scouts
    assert all(folds[row] == fold for fold, (_, rows) in enumerate(parts) for row in rows)
    assert sorted(row for _, rows in parts for row in rows) == list(range(9))
    assert Walk(subject, VARIANTS["default"], "model", [], folds).parts((1, 2), 0) == [("model", (1, 2))]


def test_the_noise_of_a_head_is_that_of_its_gains_row_by_row():
    model, rows = small_start()[0], small_rows(40)
    masked = MaskedRows([(model, rows)], 1, "accuracy", CPU)
    noises = []
    for head in (0, 2):
        pruned = copy.deepcopy(model)
        remove_heads(pruned, PruningPlan({1: (head,)}))
        gains = calibrated_rows(predict(pruned, rows), rows.labels) - calibrated_rows(predict(model, rows), rows.labels)
        noises.append(float(gains.std()) / 40**0.5)
    assert masked.noise_of_a_head((0, 2)) == pytest.approx(sum(noises) / 2, rel=1e-4)
