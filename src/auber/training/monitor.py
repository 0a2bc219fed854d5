"""Watch a tuning: check that its numbers stay finite, stop it early, and report its progress.

Reading a loss makes a GPU wait. So losses stay on the device and are read together, when one of
them is needed and at the end; an error still names the first bad step.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from auber.config import FirstTuning, LastTuning, LayerTuning
from auber.data.encoding import EncodedRows
from auber.errors import AuberError, ModelError
from auber.system.progress import Progress
from auber.training.evaluation import evaluate_rows, predict

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_RECORD_INTERVAL = 1.0  # seconds

TuningSettings = FirstTuning | LayerTuning | LastTuning
_SECTIONS: dict[type, str] = {FirstTuning: "first", LayerTuning: "layer", LastTuning: "last"}


class TuningError(AuberError, RuntimeError):
    """A tuning cannot continue."""


class DivergedError(TuningError):
    """A loss, a weight or an output is not finite; `step` is the first step that shows it."""

    def __init__(self, message: str, step: int = 0) -> None:
        super().__init__(message)
        self.step = step


class Monitor:
    """Follows a tuning from its first step to its last; `early_stopping` is optional.

    Losses stay on their device until they are read. The progress shows the tuning as `stage`. Its
    numbers are named `name`/quantity.
    """

    def __init__(
        self,
        settings: TuningSettings,
        early_stopping: EarlyStopping | None,
        progress: Progress,
        *,
        stage: str,
        name: str,
    ) -> None:
        self._settings, self._early_stopping, self._progress = settings, early_stopping, progress
        self.stage, self._name, self._total = stage, name, 0
        self._unread: list[tuple[int, Tensor]] = []  # (step, loss)
        self._recorded_step, self._recorded_time = 0, -math.inf

    def begin(self, steps: int) -> None:
        """Begin a tuning of this many steps."""
        self._total = steps
        self._progress.begin(self.stage, steps)
        if self._early_stopping is not None:
            self._early_stopping.evaluate(0)
            self._check_watched(0, self._early_stopping.watched[0][2])

    def step(self, step: int, loss: Tensor) -> bool:
        """Take note of a step and its loss, which is not written to any more.

        Return whether to stop now.
        """
        self._unread.append((step, loss))
        self._progress.step(step)
        self._record_pace(step)
        if self._early_stopping is None or step not in self._early_stopping.marks:
            return False
        self._early_stopping.evaluate(step)
        _, score, watched_loss = self._early_stopping.watched[-1]
        self._check_watched(step, watched_loss)
        self._record(step, {"watched_score": score, "watched_loss": watched_loss})
        return self._early_stopping.stopped

    def finish(self, steps: int, model: PreTrainedModel, rows: EncodedRows) -> None:
        """Check the tuned model, end the progress, and restore the best weights.

        Raise `DivergedError` unless all losses, the weights and the outputs are finite.
        """
        if self._unread:
            self._read_losses()
        broken = find_broken_weight(model)
        if broken is not None:
            found = f"others in {broken} after"
            raise self._diverged("the weights must be finite numbers", found, steps)
        # Weights may be finite and still too large to compute with; any row shows that.
        if not bool(predict(model, rows.select([0])).isfinite().all()):
            raise self._diverged(
                "the model's outputs must be finite numbers", "others after", steps
            )
        self._progress.end()
        if self._early_stopping is not None:
            self._early_stopping.restore()

    def _record_pace(self, step: int) -> None:
        """Record the loss and the pace, after the first step and then about once a second."""
        passed = time.perf_counter() - self._recorded_time
        if passed < _RECORD_INTERVAL:
            return
        numbers = {"loss": self._read_losses()}
        if self._recorded_step:  # the first step includes the start of the Trainer
            numbers["steps_per_second"] = (step - self._recorded_step) / passed
        self._record(step, numbers)
        self._recorded_step, self._recorded_time = step, time.perf_counter()

    def _record(self, step: int, numbers: dict[str, float]) -> None:
        named = {f"{self._name}/{quantity}": value for quantity, value in numbers.items()}
        self._progress.record(step, named)

    def _read_losses(self) -> float:
        """Return the newest loss; raise `DivergedError` if an unread loss is not finite."""
        steps, unread = zip(*self._unread, strict=True)
        losses: list[float] = torch.stack(unread).tolist()
        self._unread.clear()
        for step, loss in zip(steps, losses, strict=True):
            if math.isfinite(loss):
                continue
            if step > 1:
                raise self._diverged("the loss must be a finite number", f"{loss} at", step)
            # This loss was computed before the weights moved, so the learning rate is not at fault.
            raise DivergedError(
                f"{self.stage}: the loss must be a finite number, found {loss} at step 1 of "
                f"{self._total}, before any weight had moved: the model or the device computes it "
                "so; try --set precision=float32 or --set device=cpu with another folder for --out",
                1,
            )
        return losses[-1]

    def _check_watched(self, step: int, loss: float) -> None:
        """Raise `DivergedError` unless the loss on watched rows after a step is finite."""
        if not math.isfinite(loss):
            if self._unread:
                self._read_losses()  # raises for the first step whose own loss is not finite
            rule = "the loss on the watched rows must be a finite number"
            raise self._diverged(rule, f"{loss} after", step)

    def _diverged(self, rule: str, found: str, step: int) -> DivergedError:
        section = _SECTIONS[type(self._settings)]
        return DivergedError(
            f"{self.stage}: {rule}, found {found} step {step} of {self._total} with learning rate "
            f"{self._settings.learning_rate:g}; nothing of this stage is kept: give a lower "
            f"{section}.learning_rate, and as that is another run, another folder for --out",
            step,
        )


class EarlyStopping:
    """Evaluates on watched rows, keeps the best weights on the device, and decides when to stop.

    The weights before the first step are a candidate, so a tuning that only harms is undone.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        rows: EncodedRows,
        metric: str,
        settings: LastTuning,
        steps_per_epoch: int,
    ) -> None:
        self._model, self._rows, self._metric, self._settings = model, rows, metric, settings
        total = steps_per_epoch * settings.epochs
        marks = settings.evaluations_per_epoch * settings.epochs
        # Evenly spread; if an epoch has fewer steps than evaluations, there is one after each step.
        self.marks = {max(1, round(total * (mark + 1) / marks)) for mark in range(marks)}
        self._best: dict[str, torch.Tensor] = {}
        self.best_step = 0
        self.stopped = False
        self.watched: list[tuple[int, float, float]] = []  # (step, metric, loss)

    def evaluate(self, step: int) -> None:
        """Evaluate, and keep the weights if they are the best so far."""
        scores = evaluate_rows(self._model, self._rows, self._metric)
        self.watched.append((step, scores.score, scores.loss))
        ranks = [(score, -loss) for _, score, loss in self.watched]
        if self._settings.watch == "loss":
            ranks = [(minus_loss, score) for score, minus_loss in ranks]
        best = ranks.index(max(ranks))
        since_best = len(ranks) - 1 - best
        if not since_best:
            weights = self._model.state_dict()
            self._best = {name: tensor.detach().clone() for name, tensor in weights.items()}
        self.best_step = self.watched[best][0]
        self.stopped = since_best >= self._settings.patience

    def restore(self) -> None:
        """Load the best weights into the model."""
        self._model.load_state_dict(self._best)


def require_finite_weights(model: nn.Module, where: str) -> None:
    """Raise `ModelError` if a weight of the model is NaN or infinite."""
    broken = find_broken_weight(model)
    if broken is not None:
        raise ModelError(
            f"{where}: the model's weights must be finite numbers, found others in {broken}; "
            "check where the model comes from"
        )


@torch.no_grad()
def find_broken_weight(model: nn.Module) -> str | None:
    """Return the name of the first parameter that is not finite, None if all are.

    It waits for the device only once.
    """
    names = [name for name, _ in model.named_parameters()]
    checks = [parameter.isfinite().all() for parameter in model.parameters()]
    finite: list[bool] = torch.stack(checks).tolist()
    return next((name for name, good in zip(names, finite, strict=True) if not good), None)
