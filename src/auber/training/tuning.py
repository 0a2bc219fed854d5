"""Fine-tuning on the Hugging Face Trainer, with its mixed precision and multi-GPU support.

It is deterministic on a CPU for a seed and a number of threads. Nothing is written to disk: a
tuning that is interrupted starts again. Early stopping watches held-out rows of train and keeps the
best weights in memory. The learning rate decays linearly (after a warm-up if the settings ask for
one), AdamW has no weight decay, and gradients are clipped to norm 1: the defaults of the GLUE
script that the authors' code is based on.

Batches are grouped by length (`batches`). On one GPU the steps are captured and replayed
(`captured_steps`). `monitor` ends a tuning whose losses, weights or outputs are not finite.
"""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from auber.config import LastTuning
from auber.data.encoding import EncodedRows
from auber.errors import first_line
from auber.system.progress import Progress
from auber.training.captured_steps import StepCache
from auber.training.devices import Hardware
from auber.training.distillation import Teacher
from auber.training.monitor import (
    EarlyStopping,
    Monitor,
    TuningError,
    TuningSettings,
    require_finite_weights,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_FROZEN_AT_IMPORT = gc.get_freeze_count()  # the interpreter may have frozen objects itself


@dataclass(frozen=True)
class TuningReport:
    """What a tuning did."""

    steps: int
    seconds: float
    stopped_early: bool = False
    best_step: int | None = None  # None if no rows were watched
    watched: tuple[tuple[int, float, float], ...] = ()  # (step, metric, loss)
    micro_batch: int | None = None  # rows run at a time; None if whole batches fit into memory

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON types."""
        found = asdict(self)
        found["seconds"] = round(self.seconds, 3)
        found["watched"] = [list(entry) for entry in self.watched]
        if self.micro_batch is None:
            del found["micro_batch"]
        return found


def tune(
    model: PreTrainedModel,
    rows: EncodedRows,
    settings: TuningSettings,
    *,
    seed: int,
    hardware: Hardware,
    watch: tuple[EncodedRows, str] | None = None,
    stage: str = "tuning",
    name: str = "tuning",
    progress: Progress | None = None,
    step_cache: StepCache | None = None,
    teacher: Teacher | None = None,
) -> TuningReport:
    """Fine-tune a model in place.

    `watch` is (rows, metric) for early stopping; then the settings must be a `LastTuning`. The
    progress shows the tuning as `stage` and names its numbers `name`/quantity. `step_cache` shares
    captured steps with other tunings of the model. With a `teacher` the model learns from it too.
    After a `TuningError` the model is unusable.
    """
    started = time.perf_counter()
    require_finite_weights(model, stage)
    if settings.epochs == 0:
        return TuningReport(0, 0.0)
    progress = progress or Progress()
    early_stopping = None
    if watch is not None:
        assert isinstance(settings, LastTuning), "others have no patience"
        steps_per_epoch = math.ceil(len(rows) / settings.batch_size)
        early_stopping = EarlyStopping(model, *watch, settings, steps_per_epoch)
    monitor = Monitor(settings, early_stopping, progress, stage=stage, name=name)
    from auber.training.trainer import run_trainer  # the Trainer takes seconds to import

    with _freeze_objects():
        try:
            steps, micro_batch = run_trainer(
                model, rows, settings, monitor, seed, hardware, step_cache or StepCache(), teacher
            )
        except torch.OutOfMemoryError as error:
            # The Trainer takes steps that do not fit in parts; this comes from the optimiser.
            reason = first_line(error)
            raise TuningError(
                f"{stage}: the optimiser does not fit into the memory of {hardware.name} "
                f"({reason}); free some of it"
            ) from error
        # The Trainer has reference cycles; without this, optimiser and graphs would keep their
        # memory for a while.
        gc.collect()
    monitor.finish(steps, model, rows)
    model.eval()
    model.zero_grad(set_to_none=True)
    hardware.free_unused()
    report = TuningReport(steps, time.perf_counter() - started, micro_batch=micro_batch)
    if early_stopping is None:
        return report
    stopped, best = early_stopping.stopped, early_stopping.best_step
    watched = tuple(early_stopping.watched)
    return replace(report, stopped_early=stopped, best_step=best, watched=watched)


@contextlib.contextmanager
def _freeze_objects() -> Iterator[None]:
    """Exclude all existing objects from garbage collection.

    The Trainer collects garbage when it starts. Visiting all objects of torch and transformers
    would take as long as a dozen steps. If the program has frozen objects itself, do nothing.
    """
    if gc.get_freeze_count() > _FROZEN_AT_IMPORT:
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
