"""The exchange game: the whole model at constant cost; take blocks here, give one back there.

It starts from a plan. The actions are the ordered pairs of slots (`auber.search.blocks`) and
stopping: the target slot gets the best of its removed blocks back, and the source slot loses as
many of its first blocks as are needed to cost no more than the plan at the start. The reward of an
exchange is the change of the plan's score times `scale`, that of stopping is 0. The state is the
share of blocks that each slot has left. After `length` exchanges stopping is the only legal action.

Each plan is scored once and remembered.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from auber.models.plan import PruningPlan
from auber.search.blocks import Layout
from auber.search.game import BoolArray, FloatArray, GameError, Step, freeze


class ExchangeGame:
    """The game on a model; `score` maps a plan to the metric."""

    def __init__(
        self,
        layout: Layout,
        start: PruningPlan,
        score: Callable[[PruningPlan], float],
        *,
        length: int = 16,
        scale: float = 100.0,
    ) -> None:
        if length < 1:
            raise GameError(f"exchange: the length must be at least 1 exchange, found {length}")
        self.layout, self.start, self.length, self.scale = layout, start, length, scale
        num_slots = len(layout.slots)
        self.stop = num_slots * (num_slots - 1)
        self._score, self._scores = score, dict[PruningPlan, float]()
        self._start = layout.flags(start)
        self._least = layout.saved(self._start)
        self.reset()

    @property
    def state(self) -> FloatArray:
        """The share of blocks that each slot has left: (slots,)."""
        left = self.layout.left(self._removed) / self.layout.sizes
        return freeze(left.astype(np.float32))

    @property
    def plan(self) -> PruningPlan:
        """The plan now."""
        return self.layout.plan(self._removed)

    @property
    def score(self) -> float:
        """The metric of the plan now."""
        plan = self.plan
        if plan not in self._scores:
            metric = float(self._score(plan))
            if not math.isfinite(metric):
                raise GameError(f"exchange: the score must be a finite number, found {metric}")
            self._scores[plan] = metric
        return self._scores[plan]

    @property
    def rewards_computed(self) -> int:
        """How many different plans have been scored."""
        return len(self._scores)

    def slots_of(self, action: int) -> tuple[int, int]:
        """Return the slot that an exchange takes from and the one that it gives to."""
        source, target = divmod(action, len(self.layout.slots) - 1)
        return source, target + (target >= source)

    def legal_actions(self) -> BoolArray:
        """Return which of the actions are legal now; none if the episode is over."""
        legal = np.zeros(self.stop + 1, dtype=np.bool_)
        if not self.over:
            legal[self.stop] = True
            if self.exchanges < self.length:
                legal[: self.stop] = [self._after(a) is not None for a in range(self.stop)]
        return freeze(legal)

    def reset(self) -> FloatArray:
        """Begin a new episode with the plan at the start."""
        self._removed, self.exchanges, self.over = self._start, 0, False
        return self.state

    def step(self, action: int) -> Step:
        """Take a legal action; an illegal one raises `GameError` and changes nothing."""
        if not (0 <= action <= self.stop and self.legal_actions()[action]):
            raise GameError(
                f"exchange: action {action} is illegal after {self.exchanges} exchanges; "
                "legal_actions() has the legal ones"
            )
        before, reward = self.state, 0.0
        if action == self.stop:
            self.over = True
            return Step(before, action, reward, None, self.legal_actions())
        score, after = self.score, self._after(action)
        assert after is not None
        self._removed, self.exchanges = after, self.exchanges + 1
        reward = (self.score - score) * self.scale
        return Step(before, action, reward, self.state, self.legal_actions())

    def _after(self, action: int) -> BoolArray | None:
        return self.layout.exchange(self._removed, *self.slots_of(action), self._least)
