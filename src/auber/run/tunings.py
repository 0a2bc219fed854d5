"""The tunings of a run: the rows, settings and seed of each.

The run's model gets the first tuning, one after each layer, and the last. A fold model gets the
same without the rows of its fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from auber.config import FirstTuning, LastTuning, LayerTuning
from auber.data.encoding import EncodedRows
from auber.data.splits import Indices, Splits
from auber.run.request import Request
from auber.run.waypoints import Waypoint
from auber.search.stages import (
    LAST,
    REWIND,
    STEP,
    layer_stage,
    size_stage,
    tuning_series,
)
from auber.system.progress import Progress
from auber.system.seeds import derive
from auber.training.captured_steps import StepCache
from auber.training.distillation import Teacher
from auber.training.tuning import TuningReport, tune

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Tunings:
    """Tunes any model in place as the run's own model is tuned; `fold` for a fold model.

    `find_rate` returns the learning rate that `auto` stands for, `find_teacher` the teacher of the
    last tuning, and without labels of all tunings; both are called when needed. Without
    `find_teacher` no tuning has one.
    """

    def __init__(
        self,
        request: Request,
        train: EncodedRows,
        splits: Splits,
        progress: Progress,
        fold: int | None = None,
        find_rate: Callable[[], float] | None = None,
        find_teacher: Callable[[], Teacher] | None = None,
    ) -> None:
        self._find_rate, self._find_teacher = find_rate, find_teacher
        self._request, self._train, self._progress, self._fold = request, train, progress, fold
        self._num_folds = len(splits.folds)
        self._splits = splits if fold is None else splits.without_fold(fold)
        self._captured: StepCache | None = None

    @contextmanager
    def reusing_captures(self) -> Iterator[None]:
        """Reuse the CUDA graphs of one tuning in the next; no head may be removed in between."""
        captured = self._captured = StepCache()
        try:
            yield
        finally:
            captured.drop()
            self._captured = None
            self._request.hardware.free_unused()

    def run_all(self, model: PreTrainedModel, layers: Iterable[int]) -> list[TuningReport]:
        """Run the first tuning, one after each layer, and the last."""
        with self.reusing_captures():
            after_layers = (self.after_layer(model, layer) for layer in layers)
            return [self.first(model), *after_layers, self.last(model)]

    def first(self, model: PreTrainedModel, rows: Indices | None = None) -> TuningReport:
        """Run the first tuning on these rows, by default those of the protocol."""
        rows = self._splits.first if rows is None else rows
        settings = self._request.config.first
        return self._tune(model, rows, settings, "first", "first tuning", "first")

    def first_after_rewind(self, model: PreTrainedModel) -> TuningReport:
        """Repeat the first tuning for the pruned pretrained model."""
        settings, label = self._request.config.first, "first tuning of the pruned model"
        return self._tune(model, self._splits.first, settings, "first", label, REWIND)

    def after_layer(self, model: PreTrainedModel, layer: int) -> TuningReport:
        """Run the tuning after a layer was decided."""
        rows, settings = self._splits.layers[layer].mini_train, self._request.config.layer
        label = f"layer {layer}: tuning"
        return self._tune(model, rows, settings, "layer", label, layer_stage(layer), layer)

    def on_the_way(self, model: PreTrainedModel, waypoint: Waypoint, stage: str) -> TuningReport:
        """Run the part of the last tuning that follows a step to a smaller size."""
        settings = self._request.config.last.model_copy(update={"epochs": waypoint.epochs})
        label = f"tuning at {waypoint.share:g}, on the way to {waypoint.target:g}"
        rows, is_taught = self._splits.last_train, self._request.is_taught(waypoint.target)
        purpose = size_stage(STEP, waypoint.share)
        return self._tune(model, rows, settings, purpose, label, stage, is_taught=is_taught)

    def last(
        self, model: PreTrainedModel, share: float | None = None, epochs: int | None = None
    ) -> TuningReport:
        """Run the last tuning with early stopping, of one of several sizes if a share is given.

        After steps to the size, it has the rest of the epochs. A small fold may have no rows to
        watch.
        """
        if share == 1 and self._request.task.is_answered:  # it agrees with itself
            return TuningReport(0, 0.0)
        watched, settings = self._splits.last_watch, self._request.config.last
        if epochs is not None:
            settings = settings.model_copy(update={"epochs": epochs})
        watch = (self._train.select(watched), self._request.task.metric) if watched else None
        rows = self._splits.last_train
        label, stage = "last tuning", LAST
        if share is not None:
            label = f"tuning to keep {share:g}" if share < 1 else "tuning the unpruned model"
            stage = size_stage(LAST, share)
        is_taught = self._request.is_taught(share)
        return self._tune(
            model, rows, settings, "last", label, stage, watch=watch, is_taught=is_taught
        )

    def _tune(
        self,
        model: PreTrainedModel,
        rows: Indices,
        settings: FirstTuning | LayerTuning | LastTuning,
        purpose: str,  # of the seed
        label: str,
        stage: str,
        layer: int | None = None,
        watch: tuple[EncodedRows, str] | None = None,
        is_taught: bool = False,
    ) -> TuningReport:
        if not rows:
            return TuningReport(0, 0.0)
        if settings.learning_rate == "auto" and settings.epochs:
            assert self._find_rate is not None, "a run that needs a rate has chosen it"
            settings = settings.model_copy(update={"learning_rate": self._find_rate()})
        if self._fold is not None:
            label = f"fold model {self._fold + 1} of {self._num_folds}: {label}"
        seed = derive(self._request.config.seed, f"tuning/{purpose}", layer)
        train, teaching, teacher = self._train.select(rows), self._request.config.teacher, None
        if self._find_teacher is not None and (is_taught or self._request.task.is_answered):
            teacher = self._find_teacher()
        if teacher is not None and teaching.copies:
            fixed = self._request.start.tokenizer.all_special_ids
            train = train.with_noise(teaching.copies, teaching.noise, fixed, seed)
        return tune(
            model,
            train,
            settings,
            seed=seed,
            hardware=self._request.hardware,
            watch=watch,
            stage=label,
            name=tuning_series(stage, self._fold),
            progress=self._progress,
            step_cache=self._captured,
            teacher=teacher,
        )
