"""Tuning on a GPU: `pytest -m gpu tests/training`."""

from __future__ import annotations

import gc
import logging

import pytest
import torch

from auber.config import FirstTuning, LastTuning
from auber.models.plan import PruningPlan
from auber.models.surgery import remove
from auber.training import monitor, trainer
from auber.training.batches import RowCollator
from auber.training.captured_steps import CapturedSteps, StepCache
from auber.training.cuda_graphs import CudaGraphCapture
from auber.training.devices import Hardware, resolve_hardware
from auber.training.evaluation import evaluate_rows
from auber.training.monitor import DivergedError
from auber.training.tuning import tune
from tests.kinds import TOKEN_KINDS
from tests.small import small_config, small_rows, small_start
from tests.tiny_models import VARIANTS, tiny_model
from tests.training.test_trainer import SUBJECTS, subject
from tests.training.test_tuning import FIRST, WITHOUT_DROPOUT, kind_start

pytestmark = pytest.mark.gpu

UNEVEN = PruningPlan({0: [1, 2], 2: [0, 1, 3]})


def gpu(precision="bfloat16"):
    return resolve_hardware(small_config(device="cuda", precision=precision))


def start(model_type="bert", plan=None, **changes):
    model = tiny_model(model_type, vocab_size=300, pad_token_id=0, **changes)
    if plan is not None:
        remove(model, plan)
    return model.cuda()


def rows_for(model, count):
    rows = small_rows(count)
    if model.config.model_type not in ("bert", "electra"):
        rows.token_types = None
    return rows


def without_dropout(model_type):
    if model_type == "distilbert":
        return {"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0}
    return WITHOUT_DROPOUT


class Follow:
    """Tunes a model, and records its losses and the number of graphs."""

    def __init__(
        self,
        monkeypatch,
        model,
        *,
        captured=True,
        precision="bfloat16",
        epochs=5,
        seed=1,
        watch=None,
        step_cache=None,
    ):
        self.losses, self.graphs = [], 0
        step, capture = trainer.StepTrainer.training_step, CudaGraphCapture.__call__

        def listening_step(this, *arguments):
            loss = step(this, *arguments)
            self.losses.append(loss.item())
            return loss

        def listening_capture(this, computation):
            replay = capture(this, computation)
            self.graphs += 1
            return replay

        settings = LastTuning(epochs=epochs, learning_rate=1e-4, batch_size=8)
        with monkeypatch.context() as patch:
            patch.setattr(trainer.StepTrainer, "training_step", listening_step)
            patch.setattr(CudaGraphCapture, "__call__", listening_capture)
            if not captured:
                patch.setattr(trainer, "_step_capture", lambda hardware: None)
            tune(
                model,
                rows_for(model, 38),
                settings,
                seed=seed,
                hardware=gpu(precision),
                watch=watch,
                step_cache=step_cache,
            )


@pytest.mark.parametrize(
    ("precision", "plan", "tolerance"),
    [("float32", None, 1e-3), ("bfloat16", UNEVEN, 0.06)],
    ids=["float32-whole", "bfloat16-uneven"],
)
@pytest.mark.parametrize(("model_type", "attention"), VARIANTS)
def test_replayed_steps_have_the_losses_of_ordinary_ones(
    monkeypatch, caplog, model_type, attention, precision, plan, tolerance
):
    changes = {"attention": attention, **without_dropout(model_type)}
    replayed = Follow(monkeypatch, start(model_type, plan, **changes), precision=precision)
    model = start(model_type, plan, **changes)
    ordinary = Follow(monkeypatch, model, precision=precision, captured=False)
    assert len(replayed.losses) == len(ordinary.losses) == 25
    if model_type == "deberta-v2":  # parts of it are TorchScript, which copies from the host
        assert replayed.graphs == 0
        assert "cannot be captured as a CUDA graph and run several times slower" in caplog.text
    else:
        assert replayed.graphs >= 1, caplog.text
    assert ordinary.graphs == 0
    assert replayed.losses == pytest.approx(ordinary.losses, rel=tolerance, abs=tolerance)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_cached_steps_have_the_losses_of_new_ones(monkeypatch, precision):
    """With dropout: replaying from the first step on draws the same random numbers."""
    model, again = start(), start()
    cache, losses = StepCache(), []
    for seed in (1, 2):
        first = Follow(monkeypatch, model, seed=seed, precision=precision, step_cache=cache)
        second = Follow(monkeypatch, again, seed=seed, precision=precision)
        losses.append((first.losses, second.losses))
        assert (first.graphs == 0) == (seed == 2)
        assert second.graphs >= 1
    for mine, other in losses:
        assert mine == pytest.approx(other, rel=0.01, abs=0.01)
    assert losses[0][0] != pytest.approx(losses[1][0], rel=0.01, abs=0.01)


@pytest.mark.parametrize("kind", TOKEN_KINDS)
def test_every_task_type_is_captured(kind, monkeypatch, caplog):
    graphs, capture = [], CudaGraphCapture.__call__

    def listening(this, computation):
        graphs.append(computation)
        return capture(this, computation)

    monkeypatch.setattr(CudaGraphCapture, "__call__", listening)
    changes = {"hidden_size": 64, "initializer_range": 0.1, **WITHOUT_DROPOUT}
    model, rows, task = kind_start(kind, **changes)
    model.cuda()
    before = evaluate_rows(model, rows, task.metric)
    settings = FirstTuning(epochs=25, learning_rate=3e-3, batch_size=16)
    tune(model, rows, settings, seed=0, hardware=gpu())
    assert graphs
    assert "cannot be captured" not in caplog.text
    assert evaluate_rows(model, rows, task.metric).loss < before.loss / 2


def test_dropout_differs_between_replays_and_follows_the_seed():
    model = start(hidden_dropout_prob=0.5).train()
    capture = CudaGraphCapture(gpu().device)
    steps = CapturedSteps(model, lambda model, inputs: model(**inputs).loss, 1.0, capture)
    batch = {name: tensor.cuda() for name, tensor in RowCollator(small_rows(8))(range(8)).items()}
    steps(batch), steps(batch)
    losses = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        losses.append([steps(batch).item() for _ in range(4)])
    assert len(set(losses[0])) == 4
    assert losses[0] == losses[1] != losses[2]


def test_the_same_seed_gives_the_same_losses(monkeypatch):
    """Up to the order in which the GPU adds up gradients."""
    first, again, other = (Follow(monkeypatch, start(), seed=seed).losses for seed in (1, 1, 2))
    assert first == pytest.approx(again, rel=0.01, abs=0.01)
    assert first != pytest.approx(other, rel=0.01, abs=0.01)


@pytest.mark.parametrize("hindrance", ["wait", "break"])
def test_a_model_that_cannot_be_captured_is_tuned(monkeypatch, caplog, hindrance):
    """`wait` reads a value, which torch refuses; `break` waits unseen by torch, so CUDA refuses."""
    model = start()
    reads = {"wait": lambda: torch.ones((), device="cuda").item(), "break": torch.cuda.synchronize}
    model.bert.register_forward_pre_hook(lambda module, arguments: reads[hindrance]() and None)
    followed = Follow(monkeypatch, model)
    assert len(followed.losses) == 25
    assert followed.graphs == 0
    messages = [each.getMessage() for each in caplog.records if each.name == trainer.__name__]
    assert len(messages) == 1
    assert "BertForSequenceClassification cannot be captured as a CUDA graph" in messages[0]
    # Random numbers and graphs of other models still work.
    assert Follow(monkeypatch, start()).graphs >= 1


def test_every_evaluation_has_the_precision_of_tuning_and_nothing_stays_wrapped(monkeypatch):
    model, seen = start(), []
    model.classifier.register_forward_hook(
        lambda module, arguments, output: seen.append(output.dtype)
    )
    evaluate = monitor.evaluate_rows

    def listening(*arguments):
        seen.clear()
        scores = evaluate(*arguments)
        assert set(seen) == {torch.bfloat16}
        return scores

    monkeypatch.setattr(monitor, "evaluate_rows", listening)
    for _ in range(2):
        Follow(monkeypatch, model, epochs=2, watch=(small_rows(20), "accuracy"))
        assert "forward" not in model.__dict__
        seen.clear()
        evaluate_rows(model, small_rows(20), "accuracy")
        assert set(seen) == {torch.float32}
        assert all(parameter.grad is None for parameter in model.parameters())


def test_a_tuning_leaves_no_memory_behind(monkeypatch):
    model, allocated = start(), []
    for _ in range(3):
        Follow(monkeypatch, model)
        gc.collect()  # garbage of earlier tests must not disappear in between
        allocated.append(torch.cuda.memory_allocated())
    assert allocated[1] == allocated[2]


def test_the_generator_of_the_gpu_is_restored():
    model, _ = small_start()  # making it seeds the GPU too
    torch.cuda.manual_seed(1)
    expected = torch.rand(3, device="cuda")
    torch.cuda.manual_seed(1)
    tune(model, small_rows(40), FIRST, seed=1, hardware=gpu())
    assert torch.equal(torch.rand(3, device="cuda"), expected)


def test_heads_are_removed_between_tunings():
    model = tiny_model("bert").cuda()
    for layer in range(2):
        assert tune(model, rows_for(model, 38), FIRST, seed=layer, hardware=gpu()).steps == 6
        remove(model, PruningPlan({layer: [1]}))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_divergence_is_found_at_the_same_step(precision):
    model, settings = start(), FirstTuning(epochs=5, batch_size=8, learning_rate=1e30)
    message = "found nan at step 2 of 25 with learning rate 1e"
    with pytest.raises(DivergedError, match=message):
        tune(model, rows_for(model, 40), settings, seed=1, hardware=gpu(precision))


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_lack_of_memory_leads_to_parts(name, caplog):
    """torch is given less memory than a step of all rows needs."""
    caplog.set_level(logging.WARNING)
    hardware = Hardware(torch.device("cuda", 0), "float32", 1)
    model, rows = subject(name, 6000)
    model.cuda()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 200 * 2**20) / total)
    settings = FirstTuning(epochs=2, learning_rate=1e-3, batch_size=6000)
    try:
        report = tune(model, rows, settings, seed=1, hardware=hardware)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert report.steps == 2
    assert report.micro_batch is not None
    assert report.micro_batch < 6000
    assert "with captured steps" in caplog.text
    assert "each step still learns from all the rows" in caplog.text
