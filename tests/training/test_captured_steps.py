"""What can be tested of captured steps without a GPU; `test_gpu` has the rest."""

from __future__ import annotations

import copy
import weakref

import pytest
import torch

from auber.config import FirstTuning, Teaching
from auber.metrics.tags import NO_TAG
from auber.models.plan import PruningPlan
from auber.models.surgery import remove
from auber.training import trainer
from auber.training.batches import RowCollator
from auber.training.captured_steps import CapturedSteps, StepCache
from auber.training.distillation import Teacher
from auber.training.outputs import outputs_of
from auber.training.tuning import tune
from tests.kinds import TOKEN_KINDS, num_labels, random_kind_rows
from tests.recorders import Repeater, refuse
from tests.small import cpu, small_rows, small_start
from tests.tiny_models import MODEL_TYPES, tiny_model
from tests.training.test_tuning import WITHOUT_DROPOUT, kind_start, same

SETTINGS = FirstTuning(epochs=3, learning_rate=1e-3, warmup=0.5, batch_size=16)


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


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_loss_and_gradients_are_those_of_an_ordinary_step(model_type):
    model, capture = tiny_model(model_type, pad_token_id=0), Repeater()
    steps = CapturedSteps(model, loss_of, 0.5, capture)
    rows = small_rows(40)
    rows.token_types = None
    collate = RowCollator(rows, 32)
    losses = []
    for start, count in [(0, 16), (16, 16), (0, 8), (8, 16), (32, 8), (0, 16)]:
        batch = collate(range(start, start + count))
        loss, norm, gradients = plain_gradients(copy.deepcopy(model), batch, loss_of)
        model.zero_grad()
        losses.append((steps(batch), loss))
        torch.testing.assert_close(steps.norm, norm)
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            # the norm may differ in its last bit
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-5, atol=0)
            parameter.data -= 0.1 * gradient  # a graph reads the current weights
    assert capture.recorded == 2, "one graph per shape"
    assert all(loss == expected for loss, expected in losses), "a loss outlives the next step"


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_half_precision_is_close_to_autocast_and_leaves_weights_and_gradients_whole(model_type):
    model = tiny_model(model_type, pad_token_id=0, initializer_range=0.1, **WITHOUT_DROPOUT)
    rows = small_rows(16)
    rows.token_types = None
    batch = RowCollator(rows, 32)(range(16))
    steps = CapturedSteps(model, outputs_of("sequence").loss, 0.5, Repeater(), torch.bfloat16)
    losses = [steps(batch).item() for _ in range(2)]
    found = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    assert {each.dtype for each in (*model.parameters(), found)} == {torch.float32}
    loss, _, gradients = plain_gradients(copy.deepcopy(model), batch, loss_of_mixed_precision)
    wanted = torch.cat([gradient.flatten() for gradient in gradients])
    assert losses == pytest.approx([loss.item()] * 2, rel=0.02)
    assert torch.cosine_similarity(found, wanted, dim=0) > 0.95


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_frozen_parameters_get_no_gradient(dtype):
    model, _ = small_start()
    model.bert.embeddings.requires_grad_(False)
    steps = CapturedSteps(model, outputs_of("sequence").loss, 1.0, Repeater(), dtype)
    steps(RowCollator(small_rows(8))(range(8)))
    assert model.bert.embeddings.word_embeddings.weight.grad is None
    assert model.classifier.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_a_batch_with_nothing_to_learn_from_has_no_loss(kind):
    rows = random_kind_rows(kind, 40)
    if kind == "tokens":
        rows.targets.tags[0][:] = [NO_TAG] * rows.lengths[0]
        empty = [0]
    else:
        empty = [row for row in range(len(rows)) if rows[row]["start_positions"] < 0]
    model = tiny_model(kind=kind, num_labels=num_labels(kind))

    steps = CapturedSteps(model, outputs_of(kind).loss, 1.0, Repeater())
    assert steps(RowCollator(rows)(empty)).item() == 0
    assert all(not parameter.grad.any() for parameter in model.parameters())


def tuned(monkeypatch, capture, kind="sequence", **options):
    monkeypatch.setattr(trainer, "_step_capture", lambda hardware: capture)
    monkeypatch.setattr(trainer, "CAPTURE_WIDTH", 1)  # the same padding as without capture
    if kind == "sequence":
        model, rows = small_start()[0], small_rows(40)
    else:
        model, rows, _ = kind_start(kind)
    tune(model, rows, SETTINGS, seed=1, hardware=cpu(), **options)
    return model.state_dict()


@pytest.mark.parametrize("kind", ["sequence", *TOKEN_KINDS])
def test_replayed_tuning_has_the_bits_of_ordinary_tuning(kind, monkeypatch):
    capture = Repeater()
    replayed = tuned(monkeypatch, capture, kind)
    assert capture.recorded > 0
    assert same(replayed, tuned(monkeypatch, None, kind))


def test_replayed_distillation_has_the_bits_of_ordinary_distillation(monkeypatch):
    settings = Teaching(outputs=0.5, hidden=1.0)
    capture, teachers = Repeater(), [Teacher(small_start()[0], settings, cpu()) for _ in range(2)]
    replayed = tuned(monkeypatch, capture, teacher=teachers[0])
    assert capture.recorded > 0
    assert same(replayed, tuned(monkeypatch, None, teacher=teachers[1]))
    assert not same(replayed, tuned(monkeypatch, None))


def test_a_dropped_cache_frees_its_steps(monkeypatch):
    cache = StepCache()
    tuned(monkeypatch, Repeater(), step_cache=cache)
    steps = weakref.ref(cache._steps)
    assert steps() is not None
    cache.drop()
    assert steps() is None


def test_steps_that_cannot_be_captured_are_ordinary_ones(monkeypatch, caplog):
    cache, capture = StepCache(), Repeater()
    refused = tuned(monkeypatch, refuse, step_cache=cache)
    assert [each.getMessage() for each in caplog.records if each.name == trainer.__name__] == [
        "The training steps of BertForSequenceClassification cannot be captured as a CUDA graph "
        "and run several times slower: called a synchronizing CUDA operation, at model.py:7"
    ]
    assert same(refused, tuned(monkeypatch, None))
    # A handler that stores log records must not store the error, whose traceback holds the graph.
    assert all(isinstance(part, str) for record in caplog.records for part in record.args or ())
    tuned(monkeypatch, capture, step_cache=cache)
    assert capture.recorded > 0, "refused steps are not cached"


def test_a_parameter_that_the_loss_does_not_reach_stays(monkeypatch):
    monkeypatch.setattr(trainer, "_step_capture", lambda hardware: Repeater())
    model, _ = small_start()
    model.idle = torch.nn.Parameter(torch.ones(3))
    tune(model, small_rows(40), SETTINGS, seed=1, hardware=cpu())
    assert model.idle.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("plan", "expected"), [(None, [3, 0]), (PruningPlan({0: [1]}), [3, 3])], ids=["whole", "pruned"]
)
def test_cached_steps_serve_the_next_tuning_until_heads_are_removed(monkeypatch, plan, expected):
    def tuned_twice(cache):
        capture, counts = Repeater(), []
        monkeypatch.setattr(trainer, "_step_capture", lambda hardware: capture)
        model, _ = small_start()
        for seed in (1, 2):
            tune(model, small_rows(40), SETTINGS, seed=seed, hardware=cpu(), step_cache=cache)
            counts.append(capture.recorded - sum(counts))
            if plan is not None and seed == 1:
                remove(model, plan)
        return model.state_dict(), counts

    without, counts = tuned_twice(None)
    assert counts == [3, 3], "full batches of two widths, and the last of an epoch"
    weights, counts = tuned_twice(StepCache())
    assert counts == expected
    assert same(weights, without)


def test_cached_steps_fit_one_model_one_loss_and_one_precision():
    (model, _), (other, _) = small_start(), small_start()
    cache, capture = StepCache(), Repeater()
    own = (model, loss_of, 1.0, capture, None)
    steps = cache.steps(*own)
    assert cache.steps(*own) is steps
    for changed in (
        (other, loss_of, 1.0, capture, None),
        (model, loss_of_mixed_precision, 1.0, capture, None),
        (model, loss_of, 0.5, capture, None),
        (model, loss_of, 1.0, capture, torch.bfloat16),
    ):
        cache.drop()
        steps = cache.steps(*own)
        assert cache.steps(*changed) is not steps
    steps = cache.steps(*own)
    model.classifier.requires_grad_(False)
    assert cache.steps(*own) is not steps


def test_cached_steps_do_not_outlive_a_tensor_that_moved():
    """A graph reads weights and buffers where they were when it was captured."""
    model, _ = small_start()
    cache, own = StepCache(), (model, loss_of, 1.0, Repeater(), None)
    for tensor in (model.classifier.weight, model.bert.embeddings.position_ids):
        steps, before = cache.steps(*own), tensor.data
        assert cache.steps(*own) is steps
        tensor.data = before.clone()
        assert cache.steps(*own) is not steps
