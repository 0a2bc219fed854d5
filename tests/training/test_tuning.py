"""Fine-tuning: learning, determinism, side effects, early stopping and progress."""

from __future__ import annotations

import copy
import gc
import random
import weakref
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch

from auber.config import FirstTuning, LastTuning
from auber.data.encoding import encode_split
from auber.data.generated import build_tokenizer, vocabulary
from auber.training import trainer
from auber.training.batches import RowCollator
from auber.training.evaluation import evaluate_rows
from auber.training.tuning import tune
from tests.kinds import TOKEN_KINDS, small_kind_task
from tests.small import cpu, small_rows, small_start
from tests.tiny_models import tiny_model

FIRST = FirstTuning(epochs=2, learning_rate=1e-3, batch_size=16)
WITHOUT_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def tuned(settings=FIRST, seed=1, watch=None, model=None, rows=40, hardware=None, **options):
    model = copy.deepcopy(model) if model is not None else small_start()[0]
    hardware = hardware or cpu()
    report = tune(
        model, small_rows(rows), settings, seed=seed, hardware=hardware, watch=watch, **options
    )
    return model, report


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


def kind_start(kind, **changes):
    """Return a tiny model, rows and a task of a task type that it can learn."""
    task = small_kind_task(kind, train=120)
    changes = {"num_labels": task.num_labels, "pad_token_id": 0, **changes}
    model = tiny_model(kind=kind, vocab_size=len(vocabulary()), **changes)
    return model, encode_split(build_tokenizer(), task, "train", 40), task


def test_tuning_lowers_the_loss_and_counts_its_steps():
    start, _ = small_start()
    before = evaluate_rows(start, small_rows(40), "accuracy").loss
    model, report = tuned(FirstTuning(epochs=10, learning_rate=3e-3, batch_size=16))
    assert evaluate_rows(model, small_rows(40), "accuracy").loss < before
    assert report.steps == 10 * 3
    assert not model.training
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_every_task_type_is_learned(kind):
    changes = {"hidden_size": 64, "initializer_range": 0.1, **WITHOUT_DROPOUT}
    model, rows, task = kind_start(kind, **changes)
    before = evaluate_rows(model, rows, task.metric)
    settings = FirstTuning(epochs=25, learning_rate=3e-3, batch_size=16)
    tune(model, rows, settings, seed=0, hardware=cpu())
    after = evaluate_rows(model, rows, task.metric)
    assert before.score < 0.3
    assert after.score > 0.95
    assert after.loss < before.loss / 4


def test_the_same_seed_gives_the_same_bits(monkeypatch):
    first, other = (tuned(seed=seed)[0].state_dict() for seed in (1, 2))
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")  # must be ignored
    again = tuned()[0].state_dict()
    assert same(first, again)
    assert not same(first, other)


def test_no_epochs_change_nothing():
    start, _ = small_start()
    model, report = tuned(FirstTuning(epochs=0), model=start)
    assert report.steps == 0
    assert same(model.state_dict(), start.state_dict())


def test_every_epoch_uses_each_row_once_in_a_new_order(monkeypatch):
    batches = []

    class Listening(RowCollator):
        def __call__(self, rows):
            batches.append(list(rows))
            return super().__call__(rows)

    monkeypatch.setattr(trainer, "RowCollator", Listening)
    tuned()
    assert [len(batch) for batch in batches] == [16, 16, 8] * 2
    epochs = (batches[:3], batches[3:])
    first, second = ([row for batch in epoch for row in batch] for epoch in epochs)
    assert sorted(first) == sorted(second) == list(range(40))
    assert first != second


# --- precision and side effects ------------------------------------------------------------------


def test_half_precision_on_a_cpu():
    seen, (model, _) = set(), small_start()
    model.classifier.register_forward_hook(lambda module, arguments, output: seen.add(output.dtype))
    half = replace(cpu(), precision="bfloat16")
    tune(model, small_rows(40), FIRST, seed=1, hardware=half)
    assert torch.bfloat16 in seen
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("fails", [False, True])
def test_the_generators_of_the_process_are_restored(fails, monkeypatch):
    if fails:
        monkeypatch.setattr(trainer.StepTrainer, "training_step", lambda *arguments: 1 / 0)
    drawn = []
    for is_tuned in (False, True):
        torch.manual_seed(1)
        random.seed(2)
        np.random.seed(3)
        if is_tuned:
            with pytest.raises(ZeroDivisionError) if fails else nullcontext():
                tuned()
        drawn.append((torch.rand(3).tolist(), random.random(), np.random.rand()))
    assert drawn[0] == drawn[1]


def test_neither_the_trainer_nor_frozen_objects_remain(monkeypatch):
    trainers, begin = weakref.WeakSet(), trainer.StepTrainer.train
    monkeypatch.setattr(
        trainer.StepTrainer, "train", lambda this: (trainers.add(this), begin(this))
    )
    frozen = gc.get_freeze_count()
    tuned()
    assert len(trainers) == 0
    assert gc.get_freeze_count() <= frozen
    gc.freeze()  # as a program may do itself
    try:
        tuned()
        assert gc.get_freeze_count() > frozen
    finally:
        gc.unfreeze()


def test_accelerate_leaves_no_mark_on_the_model():
    """A marked model would not be prepared for several processes the next time."""
    model, _ = small_start()
    before = set(model.__dict__)
    tune(model, small_rows(40), FIRST, seed=1, hardware=cpu())
    assert set(model.__dict__) == before
    model.forward = forward = model.forward
    tune(model, small_rows(40), FIRST, seed=1, hardware=cpu())
    assert model.__dict__["forward"] is forward


# --- early stopping and progress -----------------------------------------------------------------


@pytest.mark.parametrize("watched", ["metric", "loss"])
def test_early_stopping_keeps_the_best_weights(watched):
    """A rate that is far too high ruins the model."""
    settings = LastTuning(
        epochs=20,
        learning_rate=0.3,
        batch_size=8,
        evaluations_per_epoch=1,
        patience=3,
        watch=watched,
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
    assert len([entry for entry in report.watched if entry[0] > report.best_step]) == 3


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_early_stopping_watches_the_metric_of_the_task_type(kind):
    model, rows, task = kind_start(kind)
    settings = LastTuning(
        epochs=2, learning_rate=5e-3, batch_size=32, evaluations_per_epoch=1, patience=20
    )
    watched = rows.select(range(30))
    report = tune(model, rows, settings, seed=0, hardware=cpu(), watch=(watched, task.metric))
    step, score, _ = max(report.watched, key=lambda entry: (entry[1], -entry[2]))
    assert report.best_step == step
    assert evaluate_rows(model, watched, task.metric).score == pytest.approx(score)


def test_the_watched_rows_are_evaluated_at_even_intervals():
    settings = LastTuning(
        epochs=2, learning_rate=1e-4, batch_size=4, evaluations_per_epoch=5, patience=100
    )
    _, report = tuned(settings, watch=(small_rows(30), "accuracy"))
    assert [entry[0] for entry in report.watched] == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20]
