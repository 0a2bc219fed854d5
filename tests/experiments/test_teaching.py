"""Taught rows carry what the scouts say of rows they never saw, and a tuning learns it."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from auber.config import FirstTuning
from auber.devices import Hardware
from auber.evaluation import predict
from auber.kinds import KINDS
from auber.outputs import OUTPUTS
from auber.tuning import tune
from experiments.teaching import KIND, taught
from tests.small import small_rows, small_start

CPU = Hardware(torch.device("cpu"), "float32", 1)


@pytest.fixture(autouse=True)
def _only_here():
    """Leave the package's kinds as they were."""
    yield
    KINDS.pop(KIND, None)
    OUTPUTS.pop(KIND, None)


def test_targets_are_the_scouts_of_other_folds_mixed_with_the_class():
    rows, folds = small_rows(12), np.arange(12) % 2
    scouts = [small_start(seed=seed)[0] for seed in (1, 2)]
    found = taught(rows, scouts, folds, 0.25).answers.targets
    for row in range(12):
        said = predict(scouts[folds[row]], rows.select([row])).softmax(-1)[0]
        own = torch.nn.functional.one_hot(rows.labels[row], said.shape[0])
        assert found[row].tolist() == pytest.approx((0.25 * said + 0.75 * own).tolist(), abs=1e-5)


def test_a_selection_keeps_its_targets_and_labels():
    rows = taught(small_rows(12), [small_start()[0]], np.zeros(12, int), 0.5)
    some = rows.select([7, 3])
    assert (some.labels == rows.labels[[7, 3]]).all()
    assert (some.answers.targets == rows.answers.targets[[7, 3]]).all()


def test_a_share_of_none_learns_as_if_nobody_taught():
    settings = FirstTuning(epochs=2, learning_rate=1e-3, batch_size=8)
    rows, model = small_rows(24), small_start()[0]
    plain, lesson = copy.deepcopy(model), copy.deepcopy(model)
    tune(plain, rows, settings, seed=0, hardware=CPU)
    tune(lesson, taught(rows, [model], np.zeros(24, int), 0.0), settings, seed=0, hardware=CPU)
    for one, other in zip(plain.parameters(), lesson.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_a_model_comes_to_say_what_its_teacher_says():
    rows, teacher, model = small_rows(24), small_start(seed=5)[0], small_start()[0]
    with torch.no_grad():
        teacher.classifier.weight *= 20
    lesson = taught(rows, [teacher], np.zeros(24, int), 1.0)
    wanted = predict(teacher, rows).softmax(-1)
    before = (predict(model, rows).softmax(-1) - wanted).abs().mean()
    tune(model, lesson, FirstTuning(epochs=20, learning_rate=3e-3, batch_size=8), seed=0, hardware=CPU)
    assert (predict(model, rows).softmax(-1) - wanted).abs().mean() < before / 2
