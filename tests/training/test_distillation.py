import copy

import pytest
import torch

from auber.config import Teaching
from auber.data.encoding import pad_batch
from auber.models.plan import PruningPlan
from auber.models.surgery import remove
from auber.training.devices import Hardware
from auber.training.distillation import Teacher
from auber.training.evaluation import predict
from auber.training.outputs import outputs_of
from tests.kinds import METRICS_OF, num_labels, random_kind_rows
from tests.search.made import random_rows
from tests.tiny_models import tiny_model
from tests.training.test_tuning import WITHOUT_DROPOUT

CPU = Hardware(torch.device("cpu"), "float32", 1)
KINDS = ("sequence", *METRICS_OF)


def make(kind):
    model = tiny_model(kind=kind, num_labels=num_labels(kind), **WITHOUT_DROPOUT)
    rows = random_rows(model) if kind == "sequence" else random_kind_rows(kind)
    return model, pad_batch([rows[row] for row in range(8)], rows.pad_token_id)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_equals_its_teacher_has_only_the_task_loss(kind):
    model, batch = make(kind)
    plain = Teacher(model, Teaching(), CPU).loss_of(outputs_of(kind))(model, batch)
    taught = Teacher(model, Teaching(outputs=0.25, hidden=3.0), CPU).loss_of(outputs_of(kind))(
        model, batch
    )
    assert plain > 0
    assert torch.allclose(taught, 0.75 * plain, atol=1e-6)


def test_a_teacher_in_half_precision_keeps_its_angles():
    model = tiny_model("modernbert")
    half = Hardware(CPU.device, "bfloat16", 1)
    teacher = Teacher(model, Teaching(outputs=1.0), half)._model
    assert teacher.dtype == torch.bfloat16
    angles = dict(model.named_buffers())
    assert any("inv_freq" in name for name in angles)
    for name, buffer in teacher.named_buffers():
        assert torch.equal(buffer, angles[name])


@pytest.mark.parametrize("kind", KINDS)
def test_stored_outputs_teach_what_the_teacher_does(kind):
    model, _ = make(kind)
    rows = random_rows(model) if kind == "sequence" else random_kind_rows(kind)
    stored = rows.with_taught(predict(model, rows)).select([7, 2, 0, 5])
    pruned = copy.deepcopy(model)
    remove(pruned, PruningPlan({0: [1]}, {1: range(20)}))
    losses = []
    for teacher, part in ((model, rows.select([7, 2, 0, 5])), (None, stored)):
        batch = pad_batch([part[row] for row in range(4)], rows.pad_token_id)
        losses.append(
            Teacher(teacher, Teaching(outputs=1.0), CPU).loss_of(outputs_of(kind))(pruned, batch)
        )
    assert losses[0] > 1e-3
    assert torch.allclose(*losses, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_bring_a_pruned_model_closer_to_its_teacher(kind):
    model, batch = make(kind)
    pruned = copy.deepcopy(model)
    remove(pruned, PruningPlan({0: [1]}, {1: range(20)}))
    loss_of = Teacher(model, Teaching(outputs=1.0, hidden=1.0), CPU).loss_of(outputs_of(kind))
    optimizer = torch.optim.SGD(pruned.parameters(), lr=0.004)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = loss_of(pruned, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < min(losses[:3])
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_teacher_is_a_copy_without_dropout():
    model = tiny_model().train()
    rows = random_rows(model)
    batch = pad_batch([rows[row] for row in range(8)], rows.pad_token_id)
    loss_of = Teacher(model, Teaching(outputs=1.0), CPU).loss_of(outputs_of("sequence"))
    losses = [loss_of(model.eval(), batch).item()]
    with torch.no_grad():
        model.classifier.weight.neg_()
    losses.append(loss_of(model, batch).item())
    assert losses[0] == pytest.approx(0, abs=1e-6) != losses[1]


def test_the_distance_of_outputs_is_the_divergence_at_temperature_two():
    logits, taught = torch.randn(2, 5, 3, generator=torch.manual_seed(0))
    wanted = (taught / 2).softmax(-1)
    distance = 4 * (wanted * (wanted.log() - (logits / 2).log_softmax(-1))).sum(-1).mean()
    mask = torch.ones(5, 4)
    assert torch.allclose(outputs_of("sequence").distance(logits, taught, mask), distance)
    numbers = outputs_of("sequence").distance(logits[:, :1], taught[:, :1], mask)
    assert torch.allclose(numbers, ((logits - taught)[:, 0] ** 2).mean())


@pytest.mark.parametrize("kind", ["tokens", "spans", "embeddings"])
def test_padding_adds_no_distance(kind):
    generator = torch.manual_seed(0)
    size = 3 if kind == "tokens" else 2
    logits, taught = torch.randn(2, 4, 6, size, generator=generator)
    mask = torch.tensor([1, 1, 1, 1, 0, 0]).expand(4, 6)
    distance = outputs_of(kind).distance(logits, taught, mask)
    short = outputs_of(kind).distance(logits[:, :4], taught[:, :4], mask[:, :4])
    assert torch.allclose(distance, short)
