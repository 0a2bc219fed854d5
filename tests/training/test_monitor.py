"""Losses, weights and outputs that are not finite end a tuning with the place and the remedy."""

from __future__ import annotations

import math
import pickle
import re
from types import SimpleNamespace

import pytest
import torch

from auber.config import FirstTuning, LastTuning, LayerTuning
from auber.errors import ModelError
from auber.system.progress import Progress
from auber.training.monitor import DivergedError, Monitor
from auber.training.tuning import tune
from tests.small import cpu, small_rows, small_start

FAR_TOO_HIGH = {"learning_rate": 1e30}


def lower(section):
    return (
        rf"; nothing of this stage is kept: give a lower {section}\.learning_rate, and as that is "
        "another run, another folder for --out$"
    )


def tuned(settings, model=None, **options):
    model = model or small_start()[0]
    return tune(model, small_rows(40), settings, seed=1, hardware=cpu(), **options)


def monitor_of(losses):
    settings = FirstTuning(learning_rate=3.0)
    monitor = Monitor(settings, None, Progress(), stage="first tuning", name="first")
    monitor.begin(9)
    monitor._unread = [(step, torch.tensor(loss)) for step, loss in losses.items()]
    return monitor


@pytest.mark.parametrize(
    ("losses", "step", "message"),
    [
        (
            {1: 0.7, 2: 0.6, 3: math.inf, 4: math.nan, 5: 0.5},
            3,
            "found inf at step 3 of 9 with learning rate 3" + lower("first"),
        ),
        # before any step the learning rate is not at fault
        (
            {1: math.nan},
            1,
            "found nan at step 1 of 9, before any weight had moved: the model or the device "
            "computes it so; try --set precision=float32 or --set device=cpu with another "
            "folder for --out$",
        ),
    ],
    ids=["later", "first"],
)
def test_an_error_names_the_first_bad_loss(losses, step, message):
    message = f"^first tuning: the loss must be a finite number, {message}"
    with pytest.raises(DivergedError, match=message) as caught:
        monitor_of(losses)._read_losses()
    again = pickle.loads(pickle.dumps(caught.value))  # as between processes
    assert (again.step, str(again)) == (step, str(caught.value))
    with pytest.raises(DivergedError, match=message):
        monitor_of(losses)._check_watched(6, math.nan)


@pytest.mark.parametrize(
    ("settings", "section", "found"),
    [
        (FirstTuning(epochs=2, batch_size=16, **FAR_TOO_HIGH), "first", "nan at step 2 of 6"),
        (LayerTuning(epochs=2, batch_size=16, **FAR_TOO_HIGH), "layer", "nan at step 2 of 6"),
        # After the only step the weights are finite, and what they compute is not.
        (LayerTuning(epochs=1, batch_size=64, **FAR_TOO_HIGH), "layer", "others after step 1 of 1"),
    ],
)
def test_a_rate_that_is_far_too_high(settings, section, found):
    rule = "the loss must be a finite number"
    if "others" in found:
        rule = "the model's outputs must be finite numbers"
    message = rf"^layer 3: {rule}, found {found} with learning rate 1e\+30"
    with pytest.raises(DivergedError, match=message + lower(section)):
        tuned(settings, stage="layer 3")


def test_a_bad_gradient_in_the_last_step():
    model, _ = small_start()
    model.classifier.bias.register_hook(lambda gradient: gradient * math.nan)
    settings = FirstTuning(epochs=1, learning_rate=1e-3, batch_size=64)
    message = (
        r"^tuning: the weights must be finite numbers, found others in \S+ after step 1 of 1 with "
        "learning rate 0.001"
    )
    with pytest.raises(DivergedError, match=message + lower("first")):
        tuned(settings, model)


def test_early_stopping_keeps_no_diverged_model():
    """Its accuracy, that of always predicting the first class, may be the best."""
    settings = LastTuning(epochs=2, batch_size=16, evaluations_per_epoch=3, **FAR_TOO_HIGH)
    message = (
        "^last tuning: the loss on the watched rows must be a finite number, found nan after step "
        r"1 of 6 with learning rate 1e\+30"
    )
    with pytest.raises(DivergedError, match=message + lower("last")):
        tuned(settings, stage="last tuning", watch=(small_rows(20), "accuracy"))


@pytest.mark.parametrize(
    ("name", "value", "epochs"),
    [
        ("bert.encoder.layer.1.attention.self.value.weight", math.nan, 0),
        ("classifier.bias", -math.inf, 1),
    ],
)
def test_weights_that_were_broken_before_are_a_model_error(name, value, epochs):
    model, _ = small_start()
    model.get_parameter(name).data.view(-1)[1] = value
    message = (
        "^first tuning: the model's weights must be finite numbers, found others in "
        f"{re.escape(name)}; check where the model comes from$"
    )
    with pytest.raises(ModelError, match=message):
        tuned(FirstTuning(epochs=epochs), model, stage="first tuning")


def test_losses_and_the_pace_are_recorded_about_once_a_second(monkeypatch):
    now, recorded = [0.0], []
    clock = SimpleNamespace(perf_counter=lambda: now[0])
    monkeypatch.setattr("auber.training.monitor.time", clock)
    monitor = monitor_of({})
    monitor._progress.record = lambda step, numbers: recorded.append((step, *numbers.values()))
    for step in range(1, 6):
        now[0] += 0.5
        monitor.step(step, torch.tensor(step / 8))
    assert recorded == [(1, 0.125), (3, 0.375, 2.0), (5, 0.625, 2.0)]
