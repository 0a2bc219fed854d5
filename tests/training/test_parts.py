"""Batches that do not fit into memory: run in parts, with the gradients of the whole."""

from __future__ import annotations

import logging

import pytest
import torch

from auber.config import FirstTuning
from auber.data.encoding import EncodedRows
from auber.training import trainer
from auber.training.batches import RowCollator, cut_batch
from auber.training.devices import Hardware
from auber.training.evaluation import evaluate_rows
from auber.training.tuning import TuningError, tune
from tests.kinds import TOKEN_KINDS, num_labels, random_kind_rows
from tests.small import cpu, small_rows
from tests.tiny_models import tiny_model

WITHOUT_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SUBJECTS = ("classes", "numbers", *TOKEN_KINDS)
ONE_STEP = FirstTuning(epochs=1, learning_rate=1e-3, batch_size=11)


def subject(name, count=11, **changes):
    """A model without dropout and rows it is tuned on; words and answers are spread unevenly over the rows."""
    if name in TOKEN_KINDS:
        rows, labels, kind = random_kind_rows(name, count), num_labels(name), name
    else:
        rows, labels, kind = small_rows(count), 2, "sequence"
        if name == "numbers":
            targets = torch.linspace(
                -100, 3, count
            )  # one of them is the number that marks words without a tag
            rows, labels = EncodedRows(rows.input_ids, rows.token_types, targets), 1
    model = tiny_model(
        kind=kind,
        vocab_size=300,
        num_labels=labels,
        pad_token_id=0,
        **{**WITHOUT_DROPOUT, **changes},
    )
    return model, rows


class Memory:
    """Room for so many rows at a time: a model that is given more runs out of it, as on a GPU. Takes down what was run."""

    def __init__(self, model, room):
        self.ran, self._room = [], room
        model.base_model.register_forward_pre_hook(self._look, with_kwargs=True)

    def _look(self, module, arguments, named):
        rows = len(named["input_ids"] if "input_ids" in named else arguments[0])
        if module.training:
            if rows > self._room:
                raise torch.OutOfMemoryError(
                    f"CUDA out of memory. Tried to allocate {rows} MiB.\nMore of it"
                )
            self.ran.append(rows)


def gradients_of(model):
    """The gradients of the last step before they are clipped, filled in by a tuning."""
    found = {}
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda parameter, name=name: found.update({name: parameter.grad.clone()})
        )
    return found


def losses_of(monkeypatch, model, rows, settings):
    losses, step = [], trainer.StepTrainer.training_step
    with monkeypatch.context() as patch:
        patch.setattr(
            trainer.StepTrainer,
            "training_step",
            lambda this, *arguments: losses.append(loss := step(this, *arguments)) or loss,
        )
        report = tune(model, rows, settings, seed=1, hardware=cpu())
    return torch.stack(losses), report


def said(caplog):
    return [
        record.getMessage() for record in caplog.records if record.name == "auber.training.trainer"
    ]


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_step_in_parts_has_loss_and_gradients_of_the_whole(name, monkeypatch):
    found = []
    for room in (11, 4):
        model, rows = subject(name)
        gradients, memory = gradients_of(model), Memory(model, room)
        losses, report = losses_of(monkeypatch, model, rows, ONE_STEP)
        found.append((losses, gradients))
        assert memory.ran == {11: [11], 4: [3, 3, 3, 2]}[room]
        assert report.micro_batch == {11: None, 4: 3}[room]
    (whole_loss, whole), (loss, parts) = found
    torch.testing.assert_close(loss, whole_loss, rtol=1e-5, atol=1e-6)
    largest = max(float(gradient.abs().max()) for gradient in whole.values())
    for parameter, gradient in whole.items():
        torch.testing.assert_close(parts[parameter], gradient, rtol=1e-4, atol=1e-6 * largest)


def test_a_whole_tuning_in_parts_goes_the_same_way(monkeypatch, caplog):
    found = []
    settings = FirstTuning(epochs=3, learning_rate=1e-3, batch_size=16)
    for room in (16, 5):
        model, rows = subject("classes", 40)
        memory = Memory(model, room)
        losses, report = losses_of(monkeypatch, model, rows, settings)
        found.append((losses, evaluate_rows(model, rows, "accuracy").loss))
        assert report.steps == 9
    assert memory.ran == [4, 4, 4, 4, 4, 4, 4, 4, 4, 4] * 3  # 16, 16 and 8 rows
    torch.testing.assert_close(found[1][0], found[0][0], rtol=1e-3, atol=1e-4)
    assert found[1][1] == pytest.approx(found[0][1], abs=1e-3)
    assert report.to_json()["micro_batch"] == 4
    assert said(caplog) == [
        f"tuning: out of memory on cpu with {rows} rows at a time; goes on with {rows // 2} at a time, and each step still "
        "learns from all the rows of its batch"
        for rows in (16, 8)
    ]


def test_where_all_fits_nothing_is_said_or_recorded(caplog):
    model, rows = subject("classes", 20)
    report = tune(model, rows, ONE_STEP, seed=1, hardware=cpu())
    assert "micro_batch" not in report.to_json()
    assert said(caplog) == []


def test_a_row_that_does_not_fit_is_an_error():
    model, rows = subject("classes")
    Memory(model, 0)
    message = (
        r"^layer 2: tuning: one row of \d+ tokens does not fit into the memory of cpu \(CUDA out of memory. Tried to allocate "
        r"1 MiB.\); free some of it, or lower max_length$"
    )
    with pytest.raises(TuningError, match=message):
        tune(model, rows, ONE_STEP, seed=1, hardware=cpu(), stage="layer 2: tuning")


def test_a_group_of_processes_is_told_what_to_do(monkeypatch):
    model, rows = subject("classes", 22)
    Memory(model, 4)
    monkeypatch.setattr(trainer, "num_processes", lambda: 2)
    message = (
        r"^tuning: 5 rows of \d+ tokens do not fit into the memory of cpu \(.*\), and batches are not halved in a group of "
        r"processes; start more processes, free some memory, or lower max_length$"
    )
    with pytest.raises(TuningError, match=message):
        tune(model, rows, ONE_STEP.model_copy(update={"batch_size": 10}), seed=1, hardware=cpu())


def test_a_batch_is_shared_evenly_by_a_group_of_processes(monkeypatch):
    """Else a step would see fewer rows than without the group, and looks at watched rows would come at the wrong steps."""
    model, rows = subject("classes", 22)
    monkeypatch.setattr(trainer, "num_processes", lambda: 2)
    with pytest.raises(
        TuningError,
        match="^a batch of 11 rows cannot be shared evenly by 2 processes; give first.batch_size",
    ):
        tune(model, rows, ONE_STEP, seed=1, hardware=cpu())


def test_memory_that_is_missing_elsewhere_is_said(monkeypatch):
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
def test_recordings_make_room_first(room, ran, monkeypatch, caplog):
    """They hold memory of their own: ordinary steps may fit where recorded ones do not."""
    model, rows = subject("classes", 22)
    memory = Memory(model, room)

    def full(work):
        raise AssertionError("a shape that never ran is not recorded")

    def refuse(this, inputs):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(trainer, "_step_capture", lambda hardware: full)
    monkeypatch.setattr(trainer.CapturedSteps, "__call__", refuse)
    tune(model, rows, ONE_STEP, seed=1, hardware=cpu())
    assert memory.ran == ran
    first, *others = said(caplog)
    assert first == (
        "tuning: out of memory on cpu with captured steps; goes on with ordinary steps, which are several times slower"
    )
    assert len(others) == (room < 11)


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_shares_of_the_parts_make_up_the_batch(name):
    _, rows = subject(name, 11)
    batch = RowCollator(rows)(range(11))
    parts = list(cut_batch(batch, 4))
    assert [len(part["input_ids"]) for part, _ in parts] == [4, 4, 3]
    for key, column in batch.items():
        assert torch.equal(torch.cat([part[key] for part, _ in parts]), column)
    shares = torch.stack([share for _, share in parts])
    assert shares.sum().item() == pytest.approx(1)
    if name in TOKEN_KINDS:
        assert shares.tolist() != pytest.approx([4 / 11, 4 / 11, 3 / 11])


def test_a_batch_that_teaches_nothing_has_no_shares():
    _, rows = subject("tokens", 4)
    batch = RowCollator(rows)(range(4))
    batch["labels"] = torch.full_like(batch["labels"], -100)
    assert [share.item() for _, share in cut_batch(batch, 3)] == [0, 0]


@pytest.mark.gpu
@pytest.mark.parametrize("name", SUBJECTS)
def test_a_gpu_that_runs_out_of_memory_goes_on_in_parts(name, caplog):
    """With the real thing: torch is given less memory than a step of all rows takes."""
    caplog.set_level(logging.WARNING)
    hardware = Hardware(torch.device("cuda", 0), "float32", 1)
    model, rows = subject(name, 6000)
    model.cuda()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 200 * 2**20) / total)
    try:
        report = tune(
            model,
            rows,
            FirstTuning(epochs=2, learning_rate=1e-3, batch_size=6000),
            seed=1,
            hardware=hardware,
        )
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert report.steps == 2
    assert report.micro_batch is not None
    assert report.micro_batch < 6000
    assert "with captured steps" in caplog.text
    assert "each step still learns from all the rows" in caplog.text
