"""The tunings of a run: which rows, settings and seed each has, and what a listener sees it as.

The run's model has them in turn: the first, one after each layer, the last. A scout has the same, without the rows of its fold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from auber.config import FirstTuning, LastTuning, LayerTuning
from auber.data.encoding import EncodedRows
from auber.data.splits import Indices, Splits
from auber.run.job import Job
from auber.search.stages import REWIND, layer_stage, tuning_series
from auber.system.progress import Progress
from auber.system.seeds import derive
from auber.training.tuning import StepCache, TuningReport, tune

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Tunings:
    """Tunes any model in place, as the run's own is tuned; `scout` is the fold of one that is to score its rows."""

    def __init__(
        self,
        job: Job,
        train: EncodedRows,
        splits: Splits,
        progress: Progress,
        scout: int | None = None,
    ) -> None:
        self._job, self._train, self._progress, self._scout = job, train, progress, scout
        self._all_splits = splits
        self._splits = splits if scout is None else splits.without_fold(scout)
        self._kept: StepCache | None = None

    def of_scout(self, fold: int) -> Tunings:
        """The same tunings for the scout of a fold."""
        return Tunings(self._job, self._train, self._all_splits, self._progress, fold)

    def all(self, model: PreTrainedModel, layers: Iterable[int]) -> list[TuningReport]:
        """The first tuning, those after these layers, and the last."""
        with self.in_a_row():
            after_layers = (self.after_layer(model, layer) for layer in layers)
            return [self.first(model), *after_layers, self.last(model)]

    @contextmanager
    def in_a_row(self) -> Iterator[None]:
        """Within the context, where no model loses heads, what one tuning records serves the next."""
        self._kept = StepCache()
        try:
            yield
        finally:
            self._kept = None
            self._job.hardware.free_unused()

    def first(self, model: PreTrainedModel, rows: Indices | None = None) -> TuningReport:
        """The first, on these rows or on those it has under the run's protocol."""
        rows = self._splits.first if rows is None else rows
        return self._tune(model, rows, self._job.config.first, "first", "first tuning")

    def rewound(self, model: PreTrainedModel) -> TuningReport:
        """The first again, of the pruned origin: the same in all but what a listener sees it as."""
        said = "first tuning of the pruned model"
        return self._tune(
            model, self._splits.first, self._job.config.first, "first", said, stage=REWIND
        )

    def after_layer(self, model: PreTrainedModel, layer: int) -> TuningReport:
        """The one after a layer was decided."""
        rows = self._splits.layers[layer].mini_train
        return self._tune(
            model, rows, self._job.config.layer, "layer", f"layer {layer}: tuning", layer
        )

    def last(self, model: PreTrainedModel) -> TuningReport:
        """The last, which stops early by the rows it watches; of a handful of rows a scout may have none to watch."""
        watched = self._splits.last_watch
        watch = (self._train.select(watched), self._job.task.metric) if watched else None
        return self._tune(
            model,
            self._splits.last_train,
            self._job.config.last,
            "last",
            "last tuning",
            watch=watch,
        )

    def _tune(
        self,
        model: PreTrainedModel,
        rows: Indices,
        settings: FirstTuning | LayerTuning | LastTuning,
        purpose: str,
        said: str,
        layer: int | None = None,
        watch: tuple[EncodedRows, str] | None = None,
        stage: str | None = None,
    ) -> TuningReport:
        if settings.epochs == 0 or not rows:
            self._progress.skip(1)
        if not rows:
            return TuningReport(0, 0.0)
        if stage is None:
            stage = purpose if layer is None else layer_stage(layer)
        if self._scout is not None:
            said = f"scout {self._scout + 1} of {len(self._all_splits.folds)}: {said}"
        return tune(
            model,
            self._train.select(rows),
            settings,
            seed=derive(self._job.config.seed, f"tuning/{purpose}", layer),
            hardware=self._job.hardware,
            watch=watch,
            stage=said,
            name=tuning_series(stage, self._scout),
            progress=self._progress,
            step_cache=self._kept,
        )
