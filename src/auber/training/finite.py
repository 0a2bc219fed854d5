"""Stops a tuning whose numbers are none any more: a loss or a weight that is NaN or infinite.

A loss that is read makes a GPU wait. So the losses of the steps stay where they were computed and are looked at together,
whenever one of them is wanted and at the end; the step that is named is the first bad one all the same. Behind the last step
no loss follows, so the weights themselves are looked at, and what the model makes of a row with them, before anybody can save
them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from auber.config import FirstTuning, LastTuning, LayerTuning
from auber.data.encoding import EncodedRows
from auber.errors import AuberError, ModelError
from auber.training.evaluation import predict

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from auber.training.trainer import TuningSettings

# What the settings of a tuning are called in the configuration.
_SECTIONS: dict[type, str] = {FirstTuning: "first", LayerTuning: "layer", LastTuning: "last"}


class TuningError(AuberError, RuntimeError):
    """A tuning cannot go on."""


class DivergedError(TuningError):
    """The numbers of a tuning are not finite any more; `step` is the first step at which that shows."""

    def __init__(self, message: str, step: int = 0) -> None:
        super().__init__(message)
        self.step = step


class LossWatch:
    """Keeps the losses of a tuning on their device until they are read."""

    def __init__(self, stage: str, settings: TuningSettings) -> None:
        self._stage, self._rate = stage, settings.learning_rate
        self._setting = f"{_SECTIONS[type(settings)]}.learning_rate"
        self._total = 0
        self._unread: list[tuple[int, Tensor]] = []

    def begin(self, total: int) -> None:
        """There will be so many steps."""
        self._total = total

    def add(self, step: int, loss: Tensor) -> None:
        """A step is done; its loss is a scalar that nobody writes to any more."""
        self._unread.append((step, loss))

    def read(self) -> float:
        """The newest of at least one loss; `DivergedError` if one that was not read yet is not finite."""
        losses: list[float] = torch.stack([loss for _, loss in self._unread]).tolist()
        steps = [step for step, _ in self._unread]
        self._unread.clear()
        for step, loss in zip(steps, losses, strict=True):
            if not math.isfinite(loss):
                if step == 1:
                    raise self._broken_from_the_start(loss)
                raise self._diverged("the loss must be a finite number", f"{loss} at", step)
        return losses[-1]

    def check_watched(self, step: int, loss: float) -> None:
        """Raise `DivergedError` unless the loss on watched rows after a step is finite."""
        if not math.isfinite(loss):
            if self._unread:
                self.read()  # where the steps' own losses tell of it, they name the first
            raise self._diverged(
                "the loss on the watched rows must be a finite number", f"{loss} after", step
            )

    def finish(self, step: int, model: PreTrainedModel, rows: EncodedRows) -> None:
        """Raise `DivergedError` unless all losses, and weights and outputs after the last step, are finite."""
        if self._unread:
            self.read()
        broken = find_broken_weight(model)
        if broken is not None:
            raise self._diverged(
                "the weights must be finite numbers", f"others in {broken} after", step
            )
        # Weights may be finite and yet too large to compute with; that shows in any row.
        if not bool(predict(model, rows.select([0])).isfinite().all()):
            raise self._diverged("the model's outputs must be finite numbers", "others after", step)

    def _diverged(self, rule: str, found: str, step: int) -> DivergedError:
        return DivergedError(
            f"{self._stage}: {rule}, found {found} step {step} of {self._total} with learning rate {self._rate:g}; nothing of "
            f"this stage is kept: give a lower {self._setting}, and as that is another run, another --out",
            step,
        )

    def _broken_from_the_start(self, loss: float) -> DivergedError:
        """The first loss is computed before any weight has moved, so no rate can be at fault."""
        return DivergedError(
            f"{self._stage}: the loss must be a finite number, found {loss} at step 1 of {self._total}, before any weight had moved: "
            "the model or the device computes it so; try --set precision=float32 or --set device=cpu with another --out",
            1,
        )


def require_finite_weights(model: nn.Module, where: str) -> None:
    """Raise `ModelError` if a weight of the model is NaN or infinite, before anything is made of it."""
    broken = find_broken_weight(model)
    if broken is not None:
        raise ModelError(
            f"{where}: the model's weights must be finite numbers, found others in {broken}; check where the model comes from"
        )


@torch.no_grad()
def find_broken_weight(model: nn.Module) -> str | None:
    """The first parameter that holds a number that is not finite, None where all are; waits for the device once."""
    names = [name for name, _ in model.named_parameters()]
    finite: list[bool] = torch.stack(
        [parameter.isfinite().all() for parameter in model.parameters()]
    ).tolist()
    return next((name for name, good in zip(names, finite, strict=True) if not good), None)
