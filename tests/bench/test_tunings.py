from __future__ import annotations

import copy

import pytest
import torch

from auber.bench.tunings import _bounded, compare_tunings, train_plainly
from auber.config import LayerTuning
from auber.system.progress import Progress
from tests.small import cpu


def test_both_ways_make_the_same_steps_and_leave_the_model_alone(subject, capsys):
    before = copy.deepcopy(subject.model.state_dict())
    record = compare_tunings(subject, 3, Progress())
    assert (record.plain.steps, record.tune.steps) == (4, 4)  # 2 passes of 2 steps come nearest
    assert record.ratio == pytest.approx(
        record.tune.steps_per_second / record.plain.steps_per_second
    )
    assert record.plain.steps_per_second == pytest.approx(4 / record.plain.seconds)
    assert all(
        torch.equal(tensor, before[name]) for name, tensor in subject.model.state_dict().items()
    )
    assert capsys.readouterr().out == ""


def test_the_plain_way_trains(subject):
    model = copy.deepcopy(subject.model)
    assert (
        train_plainly(model, subject.rows, LayerTuning(epochs=1, learning_rate=1e-3), 0, cpu()) == 2
    )
    assert not torch.equal(model.classifier.weight, subject.model.classifier.weight)


@pytest.mark.parametrize(
    ("steps", "rows", "epochs"), [(1, 8, 1), (4, 32, 1), (5, 40, 1), (12, 40, 2), (100, 40, 20)]
)
def test_steps_are_bounded_by_rows_or_by_passes(subject, steps, rows, epochs):
    found, passes = _bounded(subject.rows, steps, 8)
    assert (len(found), passes) == (rows, epochs)
