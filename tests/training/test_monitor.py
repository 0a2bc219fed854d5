"""Losses, weights and outputs that are not finite end a tuning with the place and the remedy."""

from __future__ import annotations

import math
import pickle

import pytest
import torch

from auber.config import FirstTuning, LastTuning, LayerTuning
from auber.errors import ModelError
from auber.system.progress import Progress
from auber.training.monitor import LossMonitor, find_broken_weight, require_finite_weights
from auber.training.tuning import DivergedError, tune
from tests.small import cpu, small_rows, small_start

FAR_TOO_HIGH = {"learning_rate": 1e30}


def lower(section):
    return (
        rf"; nothing of this stage is kept: give a lower {section}\.learning_rate, and as that is "
        "another run, another --out$"
    )


def tuned(settings, model=None, **options):
    model = model or small_start()[0]
    return tune(model, small_rows(40), settings, seed=1, hardware=cpu(), **options)


def monitor_of(losses):
    monitor = LossMonitor("first tuning", FirstTuning(learning_rate=3.0))
    monitor.begin(9)
    for step, loss in losses.items():
        monitor.add(step, torch.tensor(loss))
    return monitor


def test_an_error_names_the_first_bad_loss():
    monitor = monitor_of({1: 0.7, 2: 0.6, 3: math.inf, 4: math.nan, 5: 0.5})
    message = (
        "^first tuning: the loss must be a finite number, found inf at step 3 of 9 with learning "
        "rate 3"
    )
    with pytest.raises(DivergedError, match=message + lower("first")) as caught:
        monitor.read()
    assert caught.value.step == 3
    again = pickle.loads(pickle.dumps(caught.value))  # as between processes
    assert (again.step, str(again)) == (3, str(caught.value))


def test_the_learning_rate_is_not_blamed_for_the_first_loss():
    message = (
        "^first tuning: the loss must be a finite number, found nan at step 1 of 9, before any "
        "weight had moved: the model or the device computes it so; try --set precision=float32 or "
        "--set device=cpu with another --out$"
    )
    with pytest.raises(DivergedError, match=message) as caught:
        monitor_of({1: math.nan}).read()
    assert caught.value.step == 1


def test_the_newest_loss_is_returned_and_read_once():
    monitor = monitor_of({1: 0.75, 2: 0.5})
    assert monitor.read() == 0.5
    monitor.finish(2, small_start()[0], small_rows(2))


def test_a_bad_watched_loss_names_the_step_that_diverged():
    with pytest.raises(DivergedError, match="found nan at step 4 of 9"):
        monitor_of({4: math.nan}).check_watched(6, math.nan)


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


@pytest.mark.parametrize("epochs", [0, 1])
def test_weights_that_were_broken_before_are_a_model_error(epochs):
    model, _ = small_start()
    model.bert.encoder.layer[1].attention.self.value.weight.data[3, 5] = math.nan
    message = (
        "^first tuning: the model's weights must be finite numbers, found others in "
        r"bert\.encoder\.layer\.1\.attention\.self\.value\.weight; check where the model comes "
        "from$"
    )
    with pytest.raises(ModelError, match=message):
        tuned(FirstTuning(epochs=epochs), model, stage="first tuning")


def test_every_weight_is_checked():
    model, _ = small_start()
    assert find_broken_weight(model) is None
    require_finite_weights(model, "start")
    model.classifier.bias.data[1] = -math.inf
    assert find_broken_weight(model) == "classifier.bias"


def test_only_finite_numbers_are_recorded():
    class Listener(Progress):
        def __init__(self):
            super().__init__()
            self.numbers = []

        def record(self, step, numbers):
            self.numbers += numbers.values()

    listener = Listener()
    with pytest.raises(DivergedError):
        tuned(FirstTuning(epochs=2, batch_size=4, **FAR_TOO_HIGH), progress=listener)
    assert listener.numbers
    assert all(map(math.isfinite, listener.numbers))


def test_losses_are_read_rarely(monkeypatch):
    """After the first step, when progress is recorded, and at the end."""
    reads, read = [], LossMonitor.read

    def listening(this):
        reads.append(len(this._unread))
        return read(this)

    monkeypatch.setattr(LossMonitor, "read", listening)
    monkeypatch.setattr("auber.training.monitor._RECORD_INTERVAL", math.inf)
    tuned(FirstTuning(epochs=5, batch_size=8))
    assert reads == [1, 24]
