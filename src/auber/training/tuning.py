"""Fine-tuning on the Hugging Face Trainer, so that accelerate, mixed precision and several GPUs come with it.

Deterministic on a CPU for a seed and a number of threads. Nothing is written to disk: a tuning that is cut starts again.
Early stopping watches rows of train set apart and keeps the best weights in memory. Rate decay is linear without warm-up,
AdamW without weight decay, gradients clipped to norm 1: what the authors' code inherits from its time's GLUE script.
Batches hold rows of like length (`batches`); on one GPU the steps are recorded and replayed (`graphs`). A loss or a weight that
is not finite ends a tuning with a `DivergedError` (`finite`); batches that do not fit into memory are run in parts (`parts`);
`course` follows the steps for who listens.
"""

from __future__ import annotations

import contextlib
import gc
import math
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from auber.config import LastTuning
from auber.data.encoding import EncodedRows
from auber.system.progress import Progress
from auber.training.captured_steps import KeptSteps
from auber.training.course import Course
from auber.training.devices import Hardware
from auber.training.finite import DivergedError, LossWatch, TuningError, require_finite_weights
from auber.training.stopping import BestKeeper

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from auber.training.trainer import Trained, TuningSettings

__all__ = [
    "DivergedError",
    "KeptSteps",
    "TuningError",
    "TuningReport",
    "require_finite_weights",
    "tune",
]

_FROZEN_AT_IMPORT = gc.get_freeze_count()  # what the interpreter itself may have set aside


@dataclass(frozen=True)
class TuningReport:
    """What a tuning did."""

    steps: int
    seconds: float
    stopped_early: bool = False
    best_step: int | None = None  # only where something was watched
    watched: tuple[tuple[int, float, float], ...] = ()  # (step, metric, loss)
    micro_batch: int | None = (
        None  # rows run at a time, only where the batches did not fit into memory
    )

    def to_json(self) -> dict[str, Any]:
        """A plain JSON object."""
        return {
            "steps": self.steps,
            "seconds": round(self.seconds, 3),
            "stopped_early": self.stopped_early,
            "best_step": self.best_step,
            "watched": [list(entry) for entry in self.watched],
            **({} if self.micro_batch is None else {"micro_batch": self.micro_batch}),
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
    name: str = "tuning",
    progress: Progress | None = None,
    kept: KeptSteps | None = None,
) -> TuningReport:
    """Fine-tune a model in place.

    `watch` is (rows, metric): then the settings must be a `LastTuning`, whose early stopping applies. The listener sees it as
    `stage`; what it is told in numbers is named `name`/quantity. `kept` has the recorded steps of the tuning before and those of
    this one afterwards. After a `TuningError` the model is of no use.
    """
    started = time.perf_counter()
    require_finite_weights(model, stage)
    if settings.epochs == 0:
        return TuningReport(0, 0.0)
    listener = progress or Progress()
    keeper = None if watch is None else _keeper(model, rows, settings, *watch)
    losses = LossWatch(stage, settings)
    course = Course(losses, keeper, listener, stage=stage, name=name)
    trained = _train(model, rows, settings, course, seed, hardware, stage, kept or KeptSteps())
    losses.finish(trained.steps, model, rows)
    listener.end()
    if keeper is not None:
        keeper.restore()
    model.eval()
    model.zero_grad(set_to_none=True)
    hardware.free_unused()
    return TuningReport(
        trained.steps,
        time.perf_counter() - started,
        stopped_early=keeper.stopped if keeper else False,
        best_step=keeper.best_step if keeper else None,
        watched=tuple(keeper.watched) if keeper else (),
        micro_batch=trained.micro_batch,
    )


def _keeper(
    model: PreTrainedModel,
    rows: EncodedRows,
    settings: TuningSettings,
    watched: EncodedRows,
    metric: str,
) -> BestKeeper:
    """What looks at the watched rows during a tuning on `rows`."""
    if not isinstance(settings, LastTuning):
        raise TypeError(
            f"watching needs LastTuning settings, actual type: {type(settings).__name__}"
        )
    return BestKeeper(model, watched, metric, settings, math.ceil(len(rows) / settings.batch_size))


def _train(
    model: PreTrainedModel,
    rows: EncodedRows,
    settings: TuningSettings,
    course: Course,
    seed: int,
    hardware: Hardware,
    stage: str,
    kept: KeptSteps,
) -> Trained:
    from auber.training.trainer import run_trainer  # the Trainer takes seconds to import

    with _young_garbage(), tempfile.TemporaryDirectory(prefix="auber-") as scratch:
        try:
            trained = run_trainer(
                model,
                rows,
                settings,
                seed=seed,
                hardware=hardware,
                kept=kept,
                scratch=scratch,
                stage=stage,
                on_begin=course.begin,
                on_step=course.step,
            )
        except (
            torch.OutOfMemoryError
        ) as error:  # a step that runs out of it is taken in parts: this is all the rest
            reason = str(error).partition("\n")[0]
            raise TuningError(
                f"{stage}: the optimiser does not fit into the memory of {hardware.name} ({reason}); free some of it"
            ) from error
        # The Trainer refers to itself: without this, optimiser and recordings would keep their memory for a while.
        gc.collect()
    return trained


@contextlib.contextmanager
def _young_garbage() -> Iterator[None]:
    """Let garbage collection look at new objects only.

    The Trainer collects at its start as well, and going over all that torch and transformers have loaded takes as long as
    a dozen steps each time. Where the program has set objects aside itself, they are left as they are.
    """
    if gc.get_freeze_count() > _FROZEN_AT_IMPORT:
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
