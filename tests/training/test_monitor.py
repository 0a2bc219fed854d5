"""Losses, weights and outputs that are not finite end a tuning."""

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

RATE = {"learning_rate": 1e30}
LOWER = r"; nothing of this stage is kept: give a lower {}\.learning_rate, and as that is another run, another --out$"


def tuned(settings, **options):
    model, _ = small_start()
    return tune(model, small_rows(40), settings, seed=1, hardware=cpu(), **options)


def watch_of(settings=None):
    watch = LossMonitor("first tuning", settings or FirstTuning(learning_rate=3.0))
    watch.begin(9)
    return watch


def test_the_first_bad_loss_is_named_however_late_it_is_read():
    watch = watch_of()
    for step, loss in enumerate([0.7, 0.6, math.inf, math.nan, 0.5], 1):
        watch.add(step, torch.tensor(loss))
    message = r"^first tuning: the loss must be a finite number, found inf at step 3 of 9 with learning rate 3"
    with pytest.raises(DivergedError, match=message + LOWER.format("first")) as caught:
        watch.read()
    assert caught.value.step == 3
    again = pickle.loads(pickle.dumps(caught.value))  # as another process hands it on
    assert (again.step, str(again)) == (3, str(caught.value))


def test_no_rate_is_blamed_for_the_first_loss():
    watch = watch_of()
    watch.add(1, torch.tensor(math.nan))
    message = (
        r"^first tuning: the loss must be a finite number, found nan at step 1 of 9, before any weight had moved: the model or "
        r"the device computes it so; try --set precision=float32 or --set device=cpu with another --out$"
    )
    with pytest.raises(DivergedError, match=message) as caught:
        watch.read()
    assert caught.value.step == 1


def test_what_is_read_is_the_newest_loss_and_is_read_once():
    watch, rows = watch_of(), small_rows(2)
    watch.add(1, torch.tensor(0.75))
    watch.add(2, torch.tensor(0.5))
    assert watch.read() == 0.5
    watch.finish(2, small_start()[0], rows)


@pytest.mark.parametrize(
    ("settings", "stage", "section"),
    [
        (FirstTuning(epochs=2, batch_size=16, **RATE), "first tuning", "first"),
        (LayerTuning(epochs=2, batch_size=16, **RATE), "layer 3: tuning", "layer"),
    ],
)
def test_a_rate_that_is_far_too_high(settings, stage, section):
    message = rf"^{stage}: the loss must be a finite number, found nan at step 2 of 6 with learning rate 1e\+30"
    with pytest.raises(DivergedError, match=message + LOWER.format(section)):
        tuned(settings, stage=stage)


def test_a_tuning_of_one_step_is_looked_at_too():
    """There is no second loss to tell: the weights are finite, and what they give is not."""
    message = r"^layer 0: tuning: the model's outputs must be finite numbers, found others after step 1 of 1 with learning "
    with pytest.raises(DivergedError, match=message + r"rate 1e\+30" + LOWER.format("layer")):
        tuned(LayerTuning(epochs=1, batch_size=64, **RATE), stage="layer 0: tuning")


def test_a_gradient_that_is_no_number_in_the_last_step():
    model, _ = small_start()
    model.classifier.bias.register_hook(lambda gradient: gradient * math.nan)
    settings = FirstTuning(epochs=1, learning_rate=1e-3, batch_size=64)
    message = r"^tuning: the weights must be finite numbers, found others in \S+ after step 1 of 1 with learning rate 0.001"
    with pytest.raises(DivergedError, match=message + LOWER.format("first")):
        tune(model, small_rows(40), settings, seed=1, hardware=cpu())


def test_early_stopping_keeps_no_model_that_computes_nothing():
    """Whose accuracy, that of always answering the first class, may well be the best that was seen."""
    settings = LastTuning(epochs=2, batch_size=16, evaluations_per_epoch=3, **RATE)
    message = r"^last tuning: the loss on the watched rows must be a finite number, found nan after step 1 of 6 with learning"
    with pytest.raises(DivergedError, match=message + r" rate 1e\+30" + LOWER.format("last")):
        tuned(settings, stage="last tuning", watch=(small_rows(20), "accuracy"))


def test_a_look_that_finds_nothing_names_the_step_that_broke():
    watch = watch_of()
    watch.add(4, torch.tensor(math.nan))
    with pytest.raises(DivergedError, match="found nan at step 4 of 9"):
        watch.check_watched(6, math.nan)


def test_weights_that_were_broken_before_are_not_blamed_on_the_rate():
    model, _ = small_start()
    model.bert.encoder.layer[1].attention.self.value.weight.data[3, 5] = math.nan
    message = (
        r"^first tuning: the model's weights must be finite numbers, found others in "
        r"bert\.encoder\.layer\.1\.attention\.self\.value\.weight; check where the model comes from$"
    )
    for settings in (FirstTuning(epochs=1), FirstTuning(epochs=0)):
        with pytest.raises(ModelError, match=message):
            tune(model, small_rows(8), settings, seed=1, hardware=cpu(), stage="first tuning")


def test_weights_are_looked_at_one_by_one():
    model, _ = small_start()
    assert find_broken_weight(model) is None
    require_finite_weights(model, "start")
    model.classifier.bias.data[1] = -math.inf
    assert find_broken_weight(model) == "classifier.bias"


def test_no_number_that_is_none_reaches_a_listener():
    class Listener(Progress):
        def __init__(self):
            super().__init__()
            self.numbers = []

        def record(self, step, numbers):
            self.numbers += numbers.values()

    listener = Listener()
    with pytest.raises(DivergedError):
        tuned(FirstTuning(epochs=2, batch_size=4, **RATE), progress=listener)
    assert listener.numbers
    assert all(map(math.isfinite, listener.numbers))


def test_losses_are_read_together_and_seldom(monkeypatch):
    """Of the first step, then when a listener wants one, then at the end: in between a GPU waits for nobody."""
    reads, read = [], LossMonitor.read
    monkeypatch.setattr(
        LossMonitor, "read", lambda watch: (reads.append(len(watch._unread)), read(watch))[1]
    )
    monkeypatch.setattr("auber.training.monitor._RECORD_INTERVAL", math.inf)
    tuned(FirstTuning(epochs=5, batch_size=8))
    assert reads == [1, 24]
