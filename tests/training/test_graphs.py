"""What can be tested of recorded tuning steps without a GPU."""

from __future__ import annotations

import copy

import pytest
import torch

from auber.config import FirstTuning
from auber.models.plan import PruningPlan
from auber.models.surgery import remove_heads
from auber.training import trainer
from auber.training.batches import RowCollator
from auber.training.captured_steps import CapturedSteps, StepCache
from auber.training.tuning import tune
from tests.recorders import Repeater, refuse
from tests.small import cpu, small_rows, small_start
from tests.tiny_models import MODEL_TYPES, tiny_model

SETTINGS = FirstTuning(epochs=3, learning_rate=1e-3, batch_size=16)


def loss_of(model, inputs):
    return model(**inputs).loss


def loss_of_mixed_precision(model, inputs):
    with torch.autocast("cpu", torch.bfloat16):
        return model(**inputs).loss


def plain_gradients(model, batch, compute_loss):
    model.zero_grad()
    loss = compute_loss(model, batch)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    return loss.detach(), norm, [parameter.grad.clone() for parameter in model.parameters()]


def tuned(monkeypatch, recorder):
    monkeypatch.setattr(trainer, "_step_capture", lambda hardware: recorder)
    monkeypatch.setattr(trainer, "CAPTURE_WIDTH", 1)  # the same padding as without a recorder
    model, _ = small_start()
    tune(model, small_rows(40), SETTINGS, seed=1, hardware=cpu())
    return model.state_dict()


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
@pytest.mark.parametrize(
    ("compute_loss", "dtype"),
    [(loss_of, None), (loss_of_mixed_precision, torch.bfloat16)],
    ids=["float32", "bfloat16"],
)
def test_loss_and_gradients_are_those_of_an_ordinary_step(model_type, compute_loss, dtype):
    model = tiny_model(model_type, pad_token_id=0)
    recorder = Repeater()
    steps = CapturedSteps(model, compute_loss, 0.5, recorder, dtype)
    rows = small_rows(40)
    rows.token_types = None
    collate = RowCollator(rows, 32)
    losses = []
    for start, count in [(0, 16), (16, 16), (0, 8), (8, 16), (32, 8), (0, 16)]:
        batch = collate(range(start, start + count))
        loss, norm, gradients = plain_gradients(copy.deepcopy(model), batch, compute_loss)
        model.zero_grad()
        losses.append((steps(batch), loss))
        torch.testing.assert_close(steps.norm, norm)
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            torch.testing.assert_close(
                parameter.grad, gradient, rtol=1e-5, atol=0
            )  # a last bit of the norm
            parameter.data -= 0.1 * gradient  # a recording reads the weights as they are
    assert recorder.recorded == 2, "one recording a shape"
    assert all(loss == expected for loss, expected in losses), "a loss outlives the next step"


def test_frozen_parameters_get_no_gradient():
    model, _ = small_start()
    model.bert.embeddings.requires_grad_(False)
    steps = CapturedSteps(model, loss_of, 1.0, Repeater())
    steps(RowCollator(small_rows(8))(range(8)))
    assert model.bert.embeddings.word_embeddings.weight.grad is None
    assert model.classifier.weight.grad.abs().sum() > 0


def test_replayed_tuning_has_the_bits_of_ordinary_tuning(monkeypatch):
    recorder = Repeater()
    replayed = tuned(monkeypatch, recorder)
    assert recorder.recorded > 0
    assert same(replayed, tuned(monkeypatch, None))


def tuned_in_a_row(monkeypatch, kept, plan=None):
    """The weights after two tunings, with heads removed in between, and how many recordings each made."""
    recorder, counts = Repeater(), []
    monkeypatch.setattr(trainer, "_step_capture", lambda hardware: recorder)
    model, _ = small_start()
    for seed in (1, 2):
        tune(model, small_rows(40), SETTINGS, seed=seed, hardware=cpu(), step_cache=kept)
        counts.append(recorder.recorded - sum(counts))
        if plan is not None and seed == 1:
            remove_heads(model, plan)
    return model.state_dict(), counts


def test_what_was_recorded_serves_the_next_tuning(monkeypatch):
    anew, counts = tuned_in_a_row(monkeypatch, None)
    assert counts == [2, 2], "full batches and the last of an epoch"
    weights, counts = tuned_in_a_row(monkeypatch, StepCache())
    assert counts == [2, 0]
    assert same(weights, anew)


def test_a_model_that_has_lost_heads_is_recorded_anew(monkeypatch):
    plan = PruningPlan({0: [1]})
    anew, _ = tuned_in_a_row(monkeypatch, None, plan)
    weights, counts = tuned_in_a_row(monkeypatch, StepCache(), plan)
    assert counts == [2, 2]
    assert same(weights, anew)


def test_kept_steps_are_of_one_model_one_loss_and_one_precision():
    (model, _), (other, _) = small_start(), small_start()
    kept, recorder = StepCache(), Repeater()
    steps = kept.steps(model, loss_of, 1.0, recorder, None)
    assert kept.steps(model, loss_of, 1.0, recorder, None) is steps
    for changed in (
        (other, loss_of, 1.0, recorder, None),
        (model, loss_of_mixed_precision, 1.0, recorder, None),
        (model, loss_of, 0.5, recorder, None),
        (model, loss_of, 1.0, recorder, torch.bfloat16),
    ):
        kept.drop()
        steps = kept.steps(model, loss_of, 1.0, recorder, None)
        assert kept.steps(*changed) is not steps
    model.classifier.requires_grad_(False)
    assert kept.steps(model, loss_of, 1.0, recorder, torch.bfloat16) is not steps


def test_what_cannot_be_recorded_is_not_kept(monkeypatch):
    monkeypatch.setattr(trainer, "_step_capture", lambda hardware: refuse)
    kept = StepCache()
    model, _ = small_start()
    tune(model, small_rows(40), SETTINGS, seed=1, hardware=cpu(), step_cache=kept)
    recorder = Repeater()
    monkeypatch.setattr(trainer, "_step_capture", lambda hardware: recorder)
    tune(model, small_rows(40), SETTINGS, seed=1, hardware=cpu(), step_cache=kept)
    assert recorder.recorded > 0


def test_a_parameter_that_the_loss_does_not_reach_stays(monkeypatch):
    monkeypatch.setattr(trainer, "_step_capture", lambda hardware: Repeater())
    model, _ = small_start()
    model.idle = torch.nn.Parameter(torch.ones(3))
    tune(model, small_rows(40), SETTINGS, seed=1, hardware=cpu())
    assert model.idle.tolist() == [1, 1, 1]


def test_what_cannot_be_recorded_is_said_and_tuned_ordinarily(monkeypatch, caplog):
    refused = tuned(monkeypatch, refuse)
    assert [
        record.getMessage() for record in caplog.records if record.name == "auber.training.trainer"
    ] == [
        "The training steps of BertForSequenceClassification cannot be captured as a CUDA graph and run several times "
        "slower: called a synchronizing CUDA operation, at model.py:7"
    ]
    assert same(refused, tuned(monkeypatch, None))
    # What a handler keeps must not keep the error: its traceback holds the graph that broke.
    assert all(isinstance(part, str) for record in caplog.records for part in record.args or ())


def test_an_error_of_the_model_is_not_taken_for_one_of_recording():
    model, _ = small_start()

    def broken(model, inputs):
        raise ValueError("a mistake in the model")

    steps = CapturedSteps(model, broken, 1.0, Repeater())
    with pytest.raises(ValueError, match="a mistake in the model"):
        steps(RowCollator(small_rows(8))(range(8)))
