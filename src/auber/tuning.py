"""Fine-tuning on the Hugging Face Trainer, so that accelerate, mixed precision and several GPUs come with it.

Deterministic on a CPU for a seed and a number of threads. Nothing is written to disk: a tuning that is cut starts again.
Early stopping watches rows of train set apart and keeps the best weights in memory; the weights before the first step
count as a candidate, so that a tuning that only harms is undone. Rate decay is linear without warm-up, AdamW without
weight decay, gradients clipped to norm 1: what the authors' code inherits from its time's GLUE script.
"""

from __future__ import annotations

import logging
import math
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from auber.config import LastTuning
from auber.devices import Hardware, num_processes
from auber.evaluation import Scores, evaluate_rows
from auber.progress import Progress, Silent
from auber.tasks.encoding import EncodedRows, pad_batch

if TYPE_CHECKING:
    from transformers import PreTrainedModel, Trainer, TrainerControl

logger = logging.getLogger(__name__)


class TuningSettings(Protocol):
    """What every tuning needs to know; each tuning section of the configuration has it."""

    @property
    def epochs(self) -> int:
        """Passes over the rows."""

    @property
    def learning_rate(self) -> float:
        """The peak rate."""

    @property
    def batch_size(self) -> int:
        """Rows a step."""


@dataclass(frozen=True)
class TuningReport:
    """What a tuning did."""

    steps: int
    seconds: float
    stopped_early: bool = False
    best_step: int | None = None  # only where something was watched
    watched: tuple[tuple[int, float, float], ...] = ()  # (step, metric, loss)

    def to_json(self) -> dict[str, Any]:
        """A plain JSON object."""
        return {
            "steps": self.steps,
            "seconds": round(self.seconds, 3),
            "stopped_early": self.stopped_early,
            "best_step": self.best_step,
            "watched": [list(entry) for entry in self.watched],
        }


def tune(
    model: PreTrainedModel,
    rows: EncodedRows,
    settings: TuningSettings,
    *,
    seed: int,
    hardware: Hardware,
    watch: tuple[EncodedRows, str] | None = None,
    stage: str = "tuning",
    progress: Progress | None = None,
) -> TuningReport:
    """Fine-tune a model in place.

    `watch` is (rows, metric): then the settings must be a `LastTuning`, whose early stopping applies.
    """
    started = time.perf_counter()
    if settings.epochs == 0:
        return TuningReport(0, 0.0)
    progress = progress or Silent()
    from transformers import PrinterCallback, Trainer

    with tempfile.TemporaryDirectory(prefix="auber-") as scratch:
        trainer = Trainer(
            model=model,
            args=_training_arguments(settings, seed, hardware, scratch),
            train_dataset=rows,
            data_collator=lambda features: pad_batch(features, rows.pad_token_id),
        )
        trainer.remove_callback(PrinterCallback)
        keeper = None
        steps_per_epoch = math.ceil(len(rows) / settings.batch_size)
        trainer.add_callback(_follower(progress, stage))
        if watch is not None:
            if not isinstance(settings, LastTuning):
                raise TypeError(f"watching needs LastTuning settings, actual type: {type(settings).__name__}")
            keeper = _BestKeeper(model, *watch, settings, steps_per_epoch)
            trainer.add_callback(_watcher(keeper))
        trainer.train()
        steps = trainer.state.global_step
        _undo_wrapping(trainer, model)
    if keeper is not None:
        keeper.restore()
    model.eval()
    model.zero_grad(set_to_none=True)
    return TuningReport(
        steps,
        time.perf_counter() - started,
        stopped_early=keeper.stopped if keeper else False,
        best_step=keeper.best_step if keeper else None,
        watched=tuple(keeper.watched) if keeper else (),
    )


def _training_arguments(settings: TuningSettings, seed: int, hardware: Hardware, scratch: str) -> Any:
    from transformers import TrainingArguments

    cuda = hardware.device.type == "cuda"
    arguments = TrainingArguments(
        output_dir=scratch,
        num_train_epochs=settings.epochs,
        learning_rate=settings.learning_rate,
        # A process group shares the batch, so that a step sees as many rows whatever its size.
        per_device_train_batch_size=max(1, settings.batch_size // num_processes()),
        lr_scheduler_type="linear",
        weight_decay=0.0,
        max_grad_norm=1.0,
        optim="adamw_torch_fused" if cuda else "adamw_torch",
        bf16=cuda and hardware.precision == "bfloat16",
        use_cpu=hardware.device.type == "cpu",
        seed=seed % 2**32,
        data_seed=seed % 2**32,
        dataloader_pin_memory=cuda,
        remove_unused_columns=False,
        save_strategy="no",
        eval_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    if arguments.n_gpu > 1:
        # Several GPUs in one process would mean DataParallel and a larger batch; torchrun is the way to use them.
        arguments._n_gpu = 1
    return arguments


def _undo_wrapping(trainer: Trainer, model: PreTrainedModel) -> None:
    """Take back the autocast that accelerate puts around `forward`; it would nest with every tuning."""
    trainer.accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    trainer.accelerator.free_memory()


class _BestKeeper:
    """Early stopping: looks at the watched rows now and then, and remembers the best weights."""

    def __init__(
        self, model: PreTrainedModel, rows: EncodedRows, metric: str, settings: LastTuning, steps_per_epoch: int
    ) -> None:
        self._model, self._rows, self._metric, self._settings = model, rows, metric, settings
        total = steps_per_epoch * settings.epochs
        marks = settings.evaluations_per_epoch * settings.epochs
        # The marks are spread evenly; an epoch of fewer steps than marks is looked at after each step.
        self._marks = {max(1, round(total * (mark + 1) / marks)) for mark in range(marks)}
        self._since_best = 0
        self._best_rank = (-math.inf, -math.inf)
        self._best: dict[str, torch.Tensor] = {}
        self.best_step = 0
        self.stopped = False
        self.watched: list[tuple[int, float, float]] = []
        self.look(0)

    def look(self, step: int) -> None:
        """Evaluate, and keep the weights if they are the best so far."""
        scores = evaluate_rows(self._model, self._rows, self._metric)
        self.watched.append((step, scores.score, scores.loss))
        rank = self._rank(scores)
        if not self._best or rank > self._best_rank:
            self._best_rank, self.best_step, self._since_best = rank, step, 0
            self._best = {name: tensor.detach().clone() for name, tensor in self._model.state_dict().items()}
        else:
            self._since_best += 1

    def after_step(self, step: int) -> bool:
        """Whether the tuning should stop now."""
        if step in self._marks:
            self.look(step)
            self.stopped = self._since_best >= self._settings.patience
        return self.stopped

    def restore(self) -> None:
        """Put the best weights back."""
        self._model.load_state_dict(self._best)

    def _rank(self, scores: Scores) -> tuple[float, float]:
        return (scores.score, -scores.loss) if self._settings.watch == "metric" else (-scores.loss, scores.score)


def _follower(progress: Progress, stage: str) -> Any:
    from transformers import TrainerCallback

    class Follower(TrainerCallback):  # type: ignore[misc]
        """Hands the Trainer's steps to whoever listens."""

        def on_train_begin(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
            progress.begin(stage, state.max_steps)

        def on_step_end(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
            progress.step(state.global_step)

        def on_train_end(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
            progress.end()

    return Follower()


def _watcher(keeper: _BestKeeper) -> Any:
    from transformers import TrainerCallback

    class Watcher(TrainerCallback):  # type: ignore[misc]
        """Lets the keeper look after each step."""

        def on_step_end(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
            control.should_training_stop |= keeper.after_step(state.global_step)

    return Watcher()
