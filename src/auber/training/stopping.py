"""Early stopping: looks at watched rows now and then, remembers the best weights, says when to stop.

The weights before the first step count as a candidate, so that a tuning that only harms is undone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from auber.config import LastTuning
from auber.data.encoding import EncodedRows
from auber.training.evaluation import Scores, evaluate_rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class BestKeeper:
    """Follows a tuning of `steps_per_epoch` steps an epoch; the best weights stay on the model's device."""

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
        # The marks are spread evenly; an epoch of fewer steps than marks is looked at after each step.
        self._marks = {max(1, round(total * (mark + 1) / marks)) for mark in range(marks)}
        self._since_best = 0
        self._best_rank = (-math.inf, -math.inf)
        self._best: dict[str, torch.Tensor] = {}
        self.best_step = 0
        self.stopped = False
        self.watched: list[tuple[int, float, float]] = []  # (step, metric, loss)

    def look(self, step: int) -> None:
        """Evaluate, and keep the weights if they are the best so far."""
        scores = evaluate_rows(self._model, self._rows, self._metric)
        self.watched.append((step, scores.score, scores.loss))
        rank = self._rank(scores)
        if not self._best or rank > self._best_rank:
            self._best_rank, self.best_step, self._since_best = rank, step, 0
            self._best = {
                name: tensor.detach().clone() for name, tensor in self._model.state_dict().items()
            }
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
        return (
            (scores.score, -scores.loss)
            if self._settings.watch == "metric"
            else (-scores.loss, scores.score)
        )
