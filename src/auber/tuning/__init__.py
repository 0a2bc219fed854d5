"""Fine-tuning on the Hugging Face Trainer, so that accelerate, mixed precision and several GPUs come with it.

Deterministic on a CPU for a seed and a number of threads. Nothing is written to disk: a tuning that is cut starts again.
Early stopping watches rows of train set apart and keeps the best weights in memory. Rate decay is linear without warm-up,
AdamW without weight decay, gradients clipped to norm 1: what the authors' code inherits from its time's GLUE script.
Batches hold rows of like length (`batches`); on one GPU the steps are recorded and replayed (`graphs`). A loss or a weight that
is not finite ends a tuning with a `DivergedError` (`finite`); batches that do not fit into memory are run in parts (`parts`).
"""

from __future__ import annotations

import contextlib
import gc
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from auber.config import LastTuning
from auber.devices import Hardware
from auber.progress import Progress, Silent
from auber.tasks.encoding import EncodedRows
from auber.tuning.finite import DivergedError, LossWatch, TuningError, require_finite_weights
from auber.tuning.stopping import BestKeeper

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from auber.tuning.trainer import TuningSettings

__all__ = ["DivergedError", "TuningError", "TuningReport", "require_finite_weights", "tune"]

_RECORD_EVERY = 1.0  # seconds; a loss that is read makes a GPU wait
_FROZEN_AT_IMPORT = gc.get_freeze_count()  # what the interpreter itself may have set aside


@dataclass(frozen=True)
class TuningReport:
    """What a tuning did."""

    steps: int
    seconds: float
    stopped_early: bool = False
    best_step: int | None = None  # only where something was watched
    watched: tuple[tuple[int, float, float], ...] = ()  # (step, metric, loss)
    micro_batch: int | None = None  # rows run at a time, only where the batches did not fit into memory

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
) -> TuningReport:
    """Fine-tune a model in place.

    `watch` is (rows, metric): then the settings must be a `LastTuning`, whose early stopping applies. The listener sees it as
    `stage`; what it is told in numbers is named `name`/quantity. After a `TuningError` the model is of no use.
    """
    started = time.perf_counter()
    require_finite_weights(model, stage)
    if settings.epochs == 0:
        return TuningReport(0, 0.0)
    listener = progress or Silent()
    keeper = None
    if watch is not None:
        if not isinstance(settings, LastTuning):
            raise TypeError(f"watching needs LastTuning settings, actual type: {type(settings).__name__}")
        keeper = BestKeeper(model, *watch, settings, math.ceil(len(rows) / settings.batch_size))

    losses, pulse = LossWatch(stage, settings), _Pulse(listener, name)

    def on_begin(steps: int) -> None:
        listener.begin(stage, steps)
        losses.begin(steps)
        if keeper is not None:
            keeper.look(0)  # here the Trainer has set the precision that later looks have as well
            losses.check_watched(0, keeper.watched[0][2])

    def on_step(step: int, loss: Tensor) -> bool:
        losses.add(step, loss)
        listener.step(step)
        pulse.beat(step, losses.read)
        if keeper is None:
            return False
        looks = len(keeper.watched)
        stop = keeper.after_step(step)
        for _, score, watched_loss in keeper.watched[looks:]:
            losses.check_watched(step, watched_loss)
            listener.record(step, {f"{name}/watched_score": score, f"{name}/watched_loss": watched_loss})
        return stop

    from auber.tuning.trainer import run_trainer  # the Trainer takes seconds to import

    with _young_garbage(), tempfile.TemporaryDirectory(prefix="auber-") as scratch:
        try:
            trained = run_trainer(
                model,
                rows,
                settings,
                seed=seed,
                hardware=hardware,
                scratch=scratch,
                stage=stage,
                on_begin=on_begin,
                on_step=on_step,
            )
        except torch.OutOfMemoryError as error:  # a step that runs out of it is taken in parts: this is all the rest
            reason = str(error).partition("\n")[0]
            raise TuningError(
                f"{stage}: the optimiser does not fit into the memory of {hardware.name} ({reason}); free some of it"
            ) from error
        # The Trainer refers to itself: without this, optimiser and recordings would keep their memory for a while.
        gc.collect()
    losses.finish(trained.steps, model, rows)
    listener.end()
    if keeper is not None:
        keeper.restore()
    model.eval()
    model.zero_grad(set_to_none=True)
    if hardware.device.type == "cuda":
        torch.cuda.empty_cache()
    return TuningReport(
        trained.steps,
        time.perf_counter() - started,
        stopped_early=keeper.stopped if keeper else False,
        best_step=keeper.best_step if keeper else None,
        watched=tuple(keeper.watched) if keeper else (),
        micro_batch=trained.micro_batch,
    )


class _Pulse:
    """Tells a listener the loss and the pace of a tuning: of the first step, and then about once a second."""

    def __init__(self, listener: Progress, name: str) -> None:
        self._listener, self._name = listener, name
        self._last_step, self._last_time = 0, -math.inf

    def beat(self, step: int, read_loss: Callable[[], float]) -> None:
        """A step is done."""
        passed = time.perf_counter() - self._last_time
        if passed < _RECORD_EVERY:
            return
        numbers = {f"{self._name}/loss": read_loss()}
        if self._last_step:  # before it lies the start of the Trainer, which is no pace of its steps
            numbers[f"{self._name}/steps_per_second"] = (step - self._last_step) / passed
        self._listener.record(step, numbers)
        self._last_step, self._last_time = step, time.perf_counter()


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
