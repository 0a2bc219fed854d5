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
from auber.models.plan import PruningPlan
from auber.models.surgery import remove_heads
from auber.system.progress import Progress
from auber.training import monitor, trainer
from auber.training.batches import RowCollator
from auber.training.captured_steps import CapturedSteps, StepCache
from auber.training.cuda_graphs import CudaGraphCapture
from auber.training.devices import resolve_hardware
from auber.training.evaluation import evaluate_rows
from auber.training.tuning import tune
from tests.small import cpu, small_config, small_rows, small_start
from tests.tiny_models import VARIANTS, tiny_model

FIRST = FirstTuning(epochs=2, learning_rate=1e-3, batch_size=16)


def tuned(settings, seed=1, watch=None, model=None, rows=40, **options):
    model = copy.deepcopy(model) if model is not None else small_start()[0]
    report = tune(
        model, small_rows(rows), settings, seed=seed, hardware=cpu(), watch=watch, **options
    )
    return model, report


def test_half_precision_is_tuned_in_on_a_cpu_too():
    seen, (model, _) = set(), small_start()
    model.classifier.register_forward_hook(lambda module, arguments, output: seen.add(output.dtype))
    half = replace(cpu(), precision="bfloat16")
    tune(model, small_rows(40), FirstTuning(epochs=1, batch_size=16), seed=1, hardware=half)
    assert torch.bfloat16 in seen
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("asked", ["bf16", "fp16"])
def test_the_environment_does_not_change_the_precision(asked, monkeypatch):
    expected = tuned(FIRST)[0].state_dict()
    seen, (model, _) = set(), small_start()
    model.classifier.register_forward_hook(lambda module, arguments, output: seen.add(output.dtype))
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", asked)
    tune(model, small_rows(40), FIRST, seed=1, hardware=cpu())
    assert seen == {torch.float32}
    assert all(torch.equal(weight, expected[name]) for name, weight in model.state_dict().items())


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


@pytest.mark.parametrize("fails", [False, True])
def test_the_generators_of_the_process_are_left_alone(fails, monkeypatch):
    """Who calls draws from them; a tuning seeds them, as its dropout does."""
    if fails:
        monkeypatch.setattr(trainer.StepTrainer, "training_step", lambda *arguments: 1 / 0)
    drawn = []
    for is_tuned in (False, True):
        torch.manual_seed(1)
        random.seed(2)
        np.random.seed(3)
        if is_tuned:
            with pytest.raises(ZeroDivisionError) if fails else nullcontext():
                tuned(FIRST)
        drawn.append((torch.rand(3).tolist(), random.random(), np.random.rand()))
    assert drawn[0] == drawn[1]


@pytest.mark.gpu
def test_the_generator_of_a_gpu_is_left_alone_too():
    model, _ = small_start()
    hardware = resolve_hardware(small_config(device="cuda"))
    torch.cuda.manual_seed(1)
    expected = torch.rand(3, device="cuda")
    torch.cuda.manual_seed(1)
    tune(model, small_rows(40), FIRST, seed=1, hardware=hardware)
    assert torch.equal(torch.rand(3, device="cuda"), expected)


def test_every_epoch_takes_each_row_once_in_an_order_of_its_own(monkeypatch):
    batches = []

    class Listening(RowCollator):
        def __call__(self, rows):
            batches.append(list(rows))
            return super().__call__(rows)

    monkeypatch.setattr(trainer, "RowCollator", Listening)
    tuned(FIRST, rows=40)
    assert [len(batch) for batch in batches] == [16, 16, 8] * 2
    first, second = (
        [row for batch in epoch for row in batch] for epoch in (batches[:3], batches[3:])
    )
    assert sorted(first) == sorted(second) == list(range(40))
    assert first != second


def test_nothing_of_a_tuning_lingers(monkeypatch):
    """Neither the Trainer, which holds the optimiser, nor a change of how garbage is collected."""
    trainers = weakref.WeakSet()
    begin = trainer.StepTrainer.train
    monkeypatch.setattr(
        trainer.StepTrainer, "train", lambda this: (trainers.add(this), begin(this))
    )
    frozen = gc.get_freeze_count()
    tuned(FIRST)
    assert len(trainers) == 0
    assert gc.get_freeze_count() <= frozen
    gc.freeze()  # as a program may have done itself
    try:
        tuned(FIRST)
        assert gc.get_freeze_count() > frozen
    finally:
        gc.unfreeze()


def test_the_model_is_not_marked_by_its_tuning():
    """accelerate marks a model it has wrapped; a marked one would be tuned without autocast the next time."""
    model, _ = small_start()
    before = set(model.__dict__)
    tune(model, small_rows(40), FIRST, seed=1, hardware=cpu())
    assert set(model.__dict__) == before
    model.forward = forward = model.forward
    tune(model, small_rows(40), FIRST, seed=1, hardware=cpu())
    assert model.__dict__["forward"] is forward


def test_no_epochs_no_change():
    start, _ = small_start()
    model, report = tuned(FirstTuning(epochs=0), model=start)
    assert report.steps == 0
    assert all(
        torch.equal(tensor, start.state_dict()[name]) for name, tensor in model.state_dict().items()
    )


def test_a_pruned_model_is_tuned_like_any_other():
    model, _ = small_start()
    remove_heads(model, PruningPlan({0: [1, 2], 2: [0]}))
    before = copy.deepcopy(model.state_dict())
    after, _ = tuned(FIRST, model=model)
    changed = [
        name for name, tensor in after.state_dict().items() if not torch.equal(tensor, before[name])
    ]
    assert any("layer.0.attention.self.query" in name for name in changed)


@pytest.mark.parametrize("watched", ["metric", "loss"])
def test_early_stopping_keeps_the_best_weights(watched):
    """A rate far too high ruins the model: the best weights are those of the best evaluation, and it stops early."""
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
    evaluations_after_best = [entry for entry in report.watched if entry[0] > report.best_step]
    assert len(evaluations_after_best) == 3


def test_the_watched_rows_are_looked_at_as_often_as_asked():
    settings = LastTuning(
        epochs=2, learning_rate=1e-4, batch_size=4, evaluations_per_epoch=5, patience=100
    )
    _, report = tuned(settings, watch=(small_rows(30), "accuracy"))
    assert [entry[0] for entry in report.watched] == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20]


def test_watching_needs_the_settings_for_it():
    with pytest.raises(
        TypeError, match="watching needs LastTuning settings, actual type: FirstTuning"
    ):
        tuned(FIRST, watch=(small_rows(30), "accuracy"))


def test_a_listener_hears_every_step():
    class Listener(Progress):
        def __init__(self):
            super().__init__()
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


@pytest.mark.gpu
def test_one_tuning_after_the_other_on_a_gpu():
    model = tiny_model("bert").cuda()
    hardware = gpu()
    for layer in range(2):
        report = tune(model, rows_for(model, 38), FIRST, seed=layer, hardware=hardware)
        assert report.steps == 6
        remove_heads(model, PruningPlan({layer: [1]}))


# --- on a GPU: `pytest -m gpu tests/training` ---------------------------------------------------------------------


def gpu(precision="bfloat16"):
    return resolve_hardware(small_config(device="cuda", precision=precision))


class Follow:
    """What a tuning on the GPU did: its losses and how many recordings it made."""

    def __init__(
        self,
        monkeypatch,
        model,
        *,
        recorded=True,
        precision="bfloat16",
        epochs=5,
        seed=1,
        watch=None,
        step_cache=None,
    ):
        self.losses, self.recordings = [], 0
        step, record = trainer.StepTrainer.training_step, CudaGraphCapture.__call__

        def listening_step(this, *arguments):
            loss = step(this, *arguments)
            self.losses.append(loss.item())
            return loss

        def listening_record(this, work):
            replay = record(this, work)
            self.recordings += 1
            return replay

        settings = LastTuning(epochs=epochs, learning_rate=1e-4, batch_size=8)
        with monkeypatch.context() as patch:
            patch.setattr(trainer.StepTrainer, "training_step", listening_step)
            patch.setattr(CudaGraphCapture, "__call__", listening_record)
            if not recorded:
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


def start(model_type="bert", plan=None, **changes):
    model = tiny_model(model_type, vocab_size=300, pad_token_id=0, **changes)
    if plan is not None:
        remove_heads(model, plan)
    return model.cuda()


def rows_for(model, count):
    """Rows without segments where the model knows none."""
    rows = small_rows(count)
    if model.config.model_type not in ("bert", "electra"):
        rows.token_types = None
    return rows


def without_dropout(model_type):
    if model_type == "distilbert":
        return {"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0}
    return {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


UNEVEN = PruningPlan({0: [1, 2], 2: [0, 1, 3]})


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("precision", "plan", "tolerance"),
    [("float32", None, 1e-3), ("bfloat16", UNEVEN, 0.03)],
    ids=["float32-whole", "bfloat16-uneven"],
)
@pytest.mark.parametrize(("model_type", "attention"), VARIANTS)
def test_replayed_steps_have_the_losses_of_ordinary_ones(
    monkeypatch, caplog, model_type, attention, precision, plan, tolerance
):
    changes = {"attention": attention, **without_dropout(model_type)}
    replayed = Follow(monkeypatch, start(model_type, plan, **changes), precision=precision)
    ordinary = Follow(
        monkeypatch, start(model_type, plan, **changes), precision=precision, recorded=False
    )
    assert len(replayed.losses) == len(ordinary.losses) == 25
    if (
        model_type == "deberta-v2"
    ):  # transformers has parts of it in TorchScript, which copies from the host
        assert replayed.recordings == 0
        assert "cannot be captured as a CUDA graph and run several times slower" in caplog.text
    else:
        assert replayed.recordings >= 1, caplog.text
    assert ordinary.recordings == 0
    assert replayed.losses == pytest.approx(ordinary.losses, rel=tolerance, abs=tolerance)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_steps_that_are_kept_have_the_losses_of_new_ones(monkeypatch, precision):
    """With dropout: a tuning that replays from its first step on draws what one draws that begins with ordinary steps."""
    model, again = start(), start()
    kept, losses = StepCache(), []
    for seed in (1, 2):
        first = Follow(monkeypatch, model, seed=seed, precision=precision, step_cache=kept)
        second = Follow(monkeypatch, again, seed=seed, precision=precision)
        losses.append((first.losses, second.losses))
        assert (first.recordings == 0) == (seed == 2)
        assert second.recordings >= 1
    for mine, other in losses:
        assert mine == pytest.approx(other, rel=0.01, abs=0.01)
    assert losses[0][0] != pytest.approx(losses[1][0], rel=0.01, abs=0.01)


@pytest.mark.gpu
def test_dropout_differs_from_replay_to_replay_and_follows_the_seed():
    model = start(hidden_dropout_prob=0.5).train()
    steps = CapturedSteps(
        model, lambda model, inputs: model(**inputs).loss, 1.0, CudaGraphCapture(gpu().device)
    )
    batch = {name: tensor.cuda() for name, tensor in RowCollator(small_rows(8))(range(8)).items()}
    steps(batch), steps(batch)
    losses = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        losses.append([steps(batch).item() for _ in range(4)])
    assert len(set(losses[0])) == 4
    assert losses[0] == losses[1] != losses[2]


@pytest.mark.gpu
def test_the_same_seed_gives_the_same_losses_on_a_gpu(monkeypatch):
    """Up to the order in which the GPU adds up gradients."""
    first, again, other = (Follow(monkeypatch, start(), seed=seed).losses for seed in (1, 1, 2))
    assert first == pytest.approx(again, rel=0.01, abs=0.01)
    assert first != pytest.approx(other, rel=0.01, abs=0.01)


@pytest.mark.gpu
@pytest.mark.parametrize("hindrance", ["wait", "break"])
def test_a_model_that_cannot_be_recorded_is_tuned_all_the_same(monkeypatch, caplog, hindrance):
    """`wait` reads a value on the host, which torch refuses; `break` waits behind torch's back, so that CUDA refuses."""
    model = start()
    reads = {"wait": lambda: torch.ones((), device="cuda").item(), "break": torch.cuda.synchronize}
    model.bert.register_forward_pre_hook(lambda module, arguments: reads[hindrance]() and None)
    followed = Follow(monkeypatch, model)
    assert len(followed.losses) == 25
    assert followed.recordings == 0
    said = [
        record.getMessage() for record in caplog.records if record.name == "auber.training.trainer"
    ]
    assert len(said) == 1
    assert "BertForSequenceClassification cannot be captured as a CUDA graph" in said[0]
    # What comes after is whole: random numbers, and recordings of other models.
    assert Follow(monkeypatch, start()).recordings >= 1


@pytest.mark.gpu
def test_every_look_has_the_precision_of_tuning_and_nothing_stays_wrapped(monkeypatch):
    model = start()
    seen = []
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


@pytest.mark.gpu
def test_a_tuning_leaves_no_memory_behind(monkeypatch):
    model = start()
    allocated = []
    for _ in range(3):
        Follow(monkeypatch, model)
        gc.collect()  # what earlier tests left to it must not come or go in between
        allocated.append(torch.cuda.memory_allocated())
    assert allocated[1] == allocated[2]
