"""Follows a tuning from its first step to its last: losses are checked, watched rows looked at, a listener told."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from torch import Tensor

from auber.system.progress import Progress
from auber.training.finite import LossWatch
from auber.training.stopping import BestKeeper

_RECORD_EVERY = 1.0  # seconds; a loss that is read makes a GPU wait


class Course:
    """What happens at the begin and after each step; a keeper is there where rows are watched.

    The listener sees the tuning as `stage`; what it is told in numbers is named `name`/quantity.
    """

    def __init__(
        self,
        losses: LossWatch,
        keeper: BestKeeper | None,
        listener: Progress,
        *,
        stage: str,
        name: str,
    ) -> None:
        self._losses, self._keeper, self._listener = losses, keeper, listener
        self._stage, self._name = stage, name
        self._pulse = _Pulse(listener, name)

    def begin(self, steps: int) -> None:
        """There will be so many steps."""
        self._listener.begin(self._stage, steps)
        self._losses.begin(steps)
        if self._keeper is not None:
            self._keeper.look(
                0
            )  # here the Trainer has set the precision that later looks have as well
            self._losses.check_watched(0, self._keeper.watched[0][2])

    def step(self, step: int, loss: Tensor) -> bool:
        """A step is done, with a loss that is still on the device; whether the tuning should stop now."""
        self._losses.add(step, loss)
        self._listener.step(step)
        self._pulse.beat(step, self._losses.read)
        if self._keeper is None:
            return False
        looks = len(self._keeper.watched)
        stop = self._keeper.after_step(step)
        for _, score, watched_loss in self._keeper.watched[looks:]:
            self._losses.check_watched(step, watched_loss)
            numbers = {
                f"{self._name}/watched_score": score,
                f"{self._name}/watched_loss": watched_loss,
            }
            self._listener.record(step, numbers)
        return stop


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
        if (
            self._last_step
        ):  # before it lies the start of the Trainer, which is no pace of its steps
            numbers[f"{self._name}/steps_per_second"] = (step - self._last_step) / passed
        self._listener.record(step, numbers)
        self._last_step, self._last_time = step, time.perf_counter()
