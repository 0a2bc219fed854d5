"""Batches that do not fit into memory are run in parts, with the gradients of the whole batch."""

from __future__ import annotations

import re

import pytest
import torch

from auber.config import FirstTuning
from auber.data.encoding import EncodedRows
from auber.training import devices, trainer
from auber.training.evaluation import evaluate_rows
from auber.training.monitor import TuningError
from auber.training.tuning import tune
from tests.kinds import METRICS_OF, num_labels, random_kind_rows
from tests.small import cpu, small_rows
from tests.tiny_models import tiny_model
from tests.training.test_tuning import WITHOUT_DROPOUT

SUBJECTS = ("classes", "numbers", *METRICS_OF)
ONE_STEP = FirstTuning(epochs=1, learning_rate=1e-3, batch_size=11)


def subject(name, count=11):
    """Return a model without dropout and rows for it."""
    if name in METRICS_OF:
        rows, labels, kind = random_kind_rows(name, count), num_labels(name), name
    else:
        rows, labels, kind = small_rows(count), 2, "sequence"
        if name == "numbers":  # one of them is -100, which marks words without a tag
            targets = torch.linspace(-100, 3, count)
            rows, labels = EncodedRows(rows.input_ids, rows.token_types, targets), 1
    model = tiny_model(
        kind=kind, vocab_size=300, num_labels=labels, pad_token_id=0, **WITHOUT_DROPOUT
    )
    return model, rows


class Memory:
    """A model that runs out of memory if it gets more than some rows (of `size`, such as tokens).

    Records the rows run and refused, in training or else in evaluations.
    """

    def __init__(self, model, room, size=len, training=True):
        self.ran, self.refused, self._room = [], [], room
        self._size, self._training = size, training
        model.base_model.register_forward_pre_hook(self._look, with_kwargs=True)

    def _look(self, module, arguments, named):
        ids = named["input_ids"] if "input_ids" in named else arguments[0]
        if module.training != self._training:
            return
        if self._size(ids) > self._room:
            self.refused.append(len(ids))
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {len(ids)} MiB.\nMore of it"
            )
        self.ran.append(len(ids))


def unclipped_gradients(model):
    """Return a dict that is filled by each step of a tuning."""
    found = {}
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda parameter, name=name: found.update({name: parameter.grad.clone()})
        )
    return found


def losses_of(monkeypatch, model, rows, settings):
    losses, step = [], trainer.StepTrainer.training_step

    def listening(this, *arguments):
        losses.append(step(this, *arguments))
        return losses[-1]

    with monkeypatch.context() as patch:
        patch.setattr(trainer.StepTrainer, "training_step", listening)
        report = tune(model, rows, settings, seed=1, hardware=cpu())
    return torch.stack(losses), report


def warnings_of(caplog):
    return [each.getMessage() for each in caplog.records if each.name.startswith("auber.training")]


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_step_in_parts_has_loss_and_gradients_of_the_whole(name, monkeypatch):
    found = []
    for room, ran in ((11, [11]), (4, [3, 3, 3, 2])):
        model, rows = subject(name)
        gradients, memory = unclipped_gradients(model), Memory(model, room)
        losses, report = losses_of(monkeypatch, model, rows, ONE_STEP)
        found.append((losses, gradients))
        assert memory.ran == ran
        assert report.to_json().get("micro_batch") == (3 if room == 4 else None)
    (whole_loss, whole), (loss, parts) = found
    torch.testing.assert_close(loss, whole_loss, rtol=1e-5, atol=1e-6)
    largest = max(float(gradient.abs().max()) for gradient in whole.values())
    for parameter, gradient in whole.items():
        torch.testing.assert_close(parts[parameter], gradient, rtol=1e-4, atol=1e-6 * largest)


def test_a_whole_tuning_in_parts_has_the_same_losses(monkeypatch, caplog):
    found = []
    settings = FirstTuning(epochs=3, learning_rate=1e-3, batch_size=16)
    for room in (16, 5):
        model, rows = subject("classes", 40)
        memory = Memory(model, room)
        losses, report = losses_of(monkeypatch, model, rows, settings)
        found.append((losses, evaluate_rows(model, rows, "accuracy").loss))
        assert report.steps == 9
    assert memory.ran == [4] * 10 * 3  # 16, 16 and 8 rows per epoch
    torch.testing.assert_close(found[1][0], found[0][0], rtol=1e-3, atol=1e-4)
    assert found[1][1] == pytest.approx(found[0][1], abs=1e-3)
    assert report.to_json()["micro_batch"] == 4
    messages = [re.sub(r" of \d+ tokens", "", each) for each in warnings_of(caplog)]
    assert messages == [
        f"tuning: out of memory on cpu with {rows} rows at a time; continuing with {rows // 2} "
        "at a time, and each step still learns from all the rows of its batch"
        for rows in (16, 8)
    ]


@pytest.mark.parametrize(
    ("room", "processes", "message"),
    [
        (
            0,
            1,
            r"^layer 2: one row of \d+ tokens does not fit into the memory of cpu \(CUDA out of "
            r"memory. Tried to allocate 1 MiB.\); free some of it, or lower max_length$",
        ),
        (
            4,
            2,
            r"^layer 2: 5 rows of \d+ tokens do not fit into the memory of cpu \(.*\), and batches "
            "are not halved in a group of processes; free some memory, lower max_length or, for a "
            "tuning, start more processes$",
        ),
    ],
    ids=["one row", "processes"],
)
def test_a_batch_that_cannot_be_halved_is_an_error(room, processes, message, monkeypatch):
    model, rows = subject("classes", 20)
    Memory(model, room)
    for module in (trainer, devices):
        monkeypatch.setattr(module, "num_processes", lambda: processes)
    settings = ONE_STEP.model_copy(update={"batch_size": 10})
    with pytest.raises(TuningError, match=message):
        tune(model, rows, settings, seed=1, hardware=cpu(), stage="layer 2")


def test_processes_share_a_batch_evenly(monkeypatch):
    model, rows = subject("classes", 22)
    monkeypatch.setattr(trainer, "num_processes", lambda: 2)
    message = "^a batch of 11 rows cannot be shared evenly by 2 processes; give first.batch_size"
    with pytest.raises(TuningError, match=message):
        tune(model, rows, ONE_STEP, seed=1, hardware=cpu())


def test_an_optimiser_that_does_not_fit_is_an_error(monkeypatch):
    def step(*arguments, **options):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 5 MiB.")

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    model, rows = subject("classes")
    message = (
        r"^tuning: the optimiser does not fit into the memory of cpu "
        r"\(CUDA out of memory. Tried to allocate 5 MiB.\); free some of it$"
    )
    with pytest.raises(TuningError, match=message):
        tune(model, rows, ONE_STEP, seed=1, hardware=cpu())


@pytest.mark.parametrize(("room", "ran"), [(11, [11, 11]), (6, [6, 5, 6, 5])])
def test_captured_steps_are_given_up_first(room, ran, monkeypatch, caplog):
    """They hold memory of their own: ordinary steps may fit where captured ones do not."""
    model, rows = subject("classes", 22)
    memory = Memory(model, room)

    def refuse(this, inputs):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(trainer, "_step_capture", lambda hardware: pytest.fail)
    monkeypatch.setattr(trainer.CapturedSteps, "__call__", refuse)
    tune(model, rows, ONE_STEP, seed=1, hardware=cpu())
    assert memory.ran == ran
    first, *others = warnings_of(caplog)
    assert first == (
        "tuning: out of memory on cpu with captured steps; continuing with ordinary steps, which "
        "are several times slower"
    )
    assert len(others) == (room < 11)


@pytest.mark.parametrize(
    ("warmup", "shares"),
    [
        (0.0, [1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]),
        (0.2, [0, 0.5, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]),
        (0.45, [0, 0.2, 0.4, 0.6, 0.8, 1, 0.8, 0.6, 0.4, 0.2]),  # rounded up to whole steps
    ],
)
def test_the_learning_rate_rises_to_its_peak_and_decays_to_zero(monkeypatch, warmup, shares):
    rates, step = [], trainer.StepTrainer.training_step

    def listening(this, *arguments):
        rates.append(this.optimizer.param_groups[0]["lr"])
        return step(this, *arguments)

    monkeypatch.setattr(trainer.StepTrainer, "training_step", listening)
    model, rows = subject("classes", 20)
    settings = FirstTuning(epochs=5, learning_rate=2e-3, warmup=warmup, batch_size=10)
    tune(model, rows, settings, seed=1, hardware=cpu())
    assert rates == pytest.approx([2e-3 * share for share in shares])


def test_nothing_is_written_and_nothing_decays():
    """The Trainer's own defaults save every 500 steps, and evaluate and log."""
    found = trainer._training_arguments(ONE_STEP, 3, cpu(), "scratch")
    strategies = (found.save_strategy, found.eval_strategy, found.logging_strategy)
    assert strategies == ("no", "no", "no")
    assert (found.weight_decay, found.max_grad_norm, found.report_to) == (0, 1, [])
