from __future__ import annotations

import copy

import pytest
import torch

from auber.config import FirstTuning, LastTuning
from auber.evaluation import evaluate_rows
from auber.plan import PruningPlan
from auber.progress import Silent
from auber.surgery import remove_heads
from auber.tuning import tune
from tests.small import cpu, small_rows, small_start

FIRST = FirstTuning(epochs=2, learning_rate=1e-3, batch_size=16)


def tuned(settings, seed=1, watch=None, model=None, rows=40, **options):
    model = copy.deepcopy(model) if model is not None else small_start()[0]
    report = tune(model, small_rows(rows), settings, seed=seed, hardware=cpu(), watch=watch, **options)
    return model, report


def test_tuning_lowers_the_loss_and_counts_its_steps():
    start, _ = small_start()
    before = evaluate_rows(start, small_rows(40), "accuracy").loss
    model, report = tuned(FirstTuning(epochs=10, learning_rate=3e-3, batch_size=16))
    assert evaluate_rows(model, small_rows(40), "accuracy").loss < before
    assert report.steps == 10 * 3
    assert not model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_same_seed_same_bits_other_seed_other_bits():
    first, again, other = (tuned(FIRST, seed=seed)[0].state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_no_epochs_no_change():
    start, _ = small_start()
    model, report = tuned(FirstTuning(epochs=0), model=start)
    assert report.steps == 0
    assert all(torch.equal(tensor, start.state_dict()[name]) for name, tensor in model.state_dict().items())


def test_a_pruned_model_is_tuned_like_any_other():
    model, _ = small_start()
    remove_heads(model, PruningPlan({0: [1, 2], 2: [0]}))
    before = copy.deepcopy(model.state_dict())
    after, _ = tuned(FIRST, model=model)
    changed = [name for name, tensor in after.state_dict().items() if not torch.equal(tensor, before[name])]
    assert any("layer.0.attention.self.query" in name for name in changed)


@pytest.mark.parametrize("watched", ["metric", "loss"])
def test_early_stopping_keeps_the_best_weights(watched):
    """A rate far too high ruins the model: the best weights are those of the best evaluation, and it stops early."""
    settings = LastTuning(
        epochs=20, learning_rate=0.3, batch_size=8, evaluations_per_epoch=1, patience=3, watch=watched
    )
    rows = small_rows(30)
    model, report = tuned(settings, watch=(rows, "accuracy"))
    assert report.stopped_early
    assert report.steps < 20 * 5
    ranks = {"metric": lambda e: (e[1], -e[2]), "loss": lambda e: (-e[2], e[1])}
    best = max(report.watched, key=ranks[watched])
    assert report.best_step == best[0]
    scores = evaluate_rows(model, rows, "accuracy")
    assert (scores.score, scores.loss) == pytest.approx(best[1:], abs=1e-6)
    evaluations_after_best = [entry for entry in report.watched if entry[0] > report.best_step]
    assert len(evaluations_after_best) == 3


def test_the_watched_rows_are_looked_at_as_often_as_asked():
    settings = LastTuning(epochs=2, learning_rate=1e-4, batch_size=4, evaluations_per_epoch=5, patience=100)
    _, report = tuned(settings, watch=(small_rows(30), "accuracy"))
    assert [entry[0] for entry in report.watched] == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20]


def test_watching_needs_the_settings_for_it():
    with pytest.raises(TypeError, match="watching needs LastTuning settings, actual type: FirstTuning"):
        tuned(FIRST, watch=(small_rows(30), "accuracy"))


def test_a_listener_hears_every_step():
    class Listener(Silent):
        def __init__(self):
            self.heard = []

        def begin(self, stage, total):
            self.heard.append((stage, total))

        def step(self, done, note=""):
            self.heard.append(done)

        def end(self):
            self.heard.append("end")

    listener = Listener()
    tuned(FirstTuning(epochs=1, batch_size=16), stage="first tuning", progress=listener)
    assert listener.heard == [("first tuning", 3), 1, 2, 3, "end"]
