"""Tuning on rows that are answered token by token."""

from __future__ import annotations

import pytest
import torch

from auber.config import FirstTuning, LastTuning
from auber.data.agreement_model import build_tokenizer, vocabulary
from auber.data.encoding import encode_split, part_batch
from auber.data.task_types import KINDS
from auber.metrics.tags import NO_TAG
from auber.training import trainer
from auber.training.batches import RowCollator
from auber.training.captured_steps import CapturedSteps
from auber.training.cuda_graphs import CudaGraphCapture
from auber.training.devices import Hardware
from auber.training.evaluation import evaluate_rows
from auber.training.outputs import OUTPUTS
from auber.training.tuning import tune
from tests.kinds import TOKEN_KINDS, num_labels, random_kind_rows, small_kind_task
from tests.small import cpu
from tests.tiny_models import tiny_model

SETTINGS = FirstTuning(epochs=3, learning_rate=1e-3, batch_size=16)


def start_of(kind, **changes):
    task = small_kind_task(kind, train=120)
    model = tiny_model(
        kind=kind,
        vocab_size=len(vocabulary()),
        pad_token_id=0,
        num_labels=task.num_labels,
        **changes,
    )
    return model, encode_split(build_tokenizer(), task, "train", 40), task


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_a_tiny_model_learns_its_task(kind):
    without_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model, rows, task = start_of(kind, hidden_size=64, initializer_range=0.1, **without_dropout)
    before = evaluate_rows(model, rows, task.metric)
    tune(
        model,
        rows,
        FirstTuning(epochs=25, learning_rate=3e-3, batch_size=16),
        seed=0,
        hardware=cpu(),
    )
    after = evaluate_rows(model, rows, task.metric)
    assert before.score < 0.3
    assert after.score > 0.95
    assert after.loss < before.loss / 4


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_recorded_steps_tune_to_the_same_bits(kind, monkeypatch):
    found = []
    monkeypatch.setattr(trainer, "CAPTURE_WIDTH", 1)  # the same padding as without a recorder
    for recorder in (None, lambda work: work):
        monkeypatch.setattr(trainer, "_step_capture", lambda hardware, recorder=recorder: recorder)
        model, rows, _ = start_of(kind)
        tune(model, rows, SETTINGS, seed=1, hardware=cpu())
        found.append(model.state_dict())
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_padding_changes_no_loss(kind):
    """Recorded batches are as wide as a multiple of 32: tags and answers must not notice."""
    model = tiny_model(kind=kind, num_labels=num_labels(kind)).train(False)
    rows = random_kind_rows(kind, 40)
    losses = []
    for multiple in (1, 32):
        collate = RowCollator(rows, multiple)
        batch = collate([row for row in range(40) if rows.lengths[row] < 10])
        losses.append(OUTPUTS[kind].batch_loss(model, *part_batch(batch)))
    torch.testing.assert_close(*losses, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_a_batch_with_nothing_to_learn_from_has_no_loss(kind):
    rows = random_kind_rows(kind, 40)
    empty = [
        row
        for row in range(len(rows))
        if rows[row].get("start_positions", 0) < 0
        or all(tag == NO_TAG for tag in rows[row].get("labels", [0]))
    ]
    if kind == "tokens":
        rows.answers.tags[0][:] = [NO_TAG] * rows.lengths[0]
        empty = [0]
    model = tiny_model(kind=kind, num_labels=num_labels(kind))
    steps = CapturedSteps(
        model,
        lambda call, inputs: OUTPUTS[kind].batch_loss(call, *part_batch(inputs)),
        1.0,
        lambda work: work,
    )
    assert steps(RowCollator(rows)(empty)).item() == 0
    assert all(not parameter.grad.any() for parameter in model.parameters())


def test_labels_of_tokens_are_padded_with_what_losses_leave_out():
    batch = RowCollator(random_kind_rows("tokens"))(range(17))
    assert batch["labels"].shape == batch["input_ids"].shape
    assert (batch["labels"][batch["attention_mask"] == 0] == NO_TAG).all()
    batch = RowCollator(random_kind_rows("spans"))(range(17))
    assert batch["start_positions"].shape == batch["end_positions"].shape == (17,)


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_early_stopping_watches_the_metric_of_the_kind(kind):
    model, rows, _ = start_of(kind)
    settings = LastTuning(
        epochs=2, learning_rate=5e-3, batch_size=32, evaluations_per_epoch=2, patience=20
    )
    report = tune(
        model,
        rows,
        settings,
        seed=0,
        hardware=cpu(),
        watch=(rows.select(range(30)), KINDS[kind].metric),
    )
    assert len(report.watched) == 5
    best = max(report.watched, key=lambda entry: (entry[1], -entry[2]))
    assert report.best_step == best[0]
    assert evaluate_rows(model, rows.select(range(30)), KINDS[kind].metric).score == pytest.approx(
        best[1]
    )


@pytest.mark.gpu
@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_steps_are_recorded_on_a_gpu(kind, monkeypatch, caplog):
    hardware = Hardware(torch.device("cuda", 0), "bfloat16", 1)
    recorded = []
    record = CudaGraphCapture.__call__
    monkeypatch.setattr(
        CudaGraphCapture,
        "__call__",
        lambda self, work: (recorded.append(work), record(self, work))[1],
    )
    without_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model, rows, task = start_of(kind, hidden_size=64, initializer_range=0.1, **without_dropout)
    model.cuda()
    before = evaluate_rows(model, rows, task.metric)
    tune(
        model,
        rows,
        FirstTuning(epochs=25, learning_rate=3e-3, batch_size=16),
        seed=0,
        hardware=hardware,
    )
    assert recorded
    assert "cannot be recorded" not in caplog.text
    assert evaluate_rows(model, rows, task.metric).loss < before.loss / 2
