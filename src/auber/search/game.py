"""The pruning game of one layer: remove units one at a time, or stop.

The units are a layer's heads, or blocks of its neurons (`auber.search.blocks`). With n units there
are n + 1 actions: 0 to n - 1 remove that unit, n stops. The reward of a removal is the change of
the metric times `scale`, plus `unit_reward` (0 in the paper). The reward of stopping is
`stop_reward`. A unit cannot be removed twice, and the last unit cannot be removed, so after n - 1
removals stopping is the only legal action. The reward of that forced stop is always 0, because it
was not a choice.

The state is a copy of the initial state with 0 at the removed units. After a stop there is none.
The paper's listing overwrites the stored state and lets a unit be chosen again.

A game may also begin with some units removed: the `prior` (none in the paper). The action of such a
unit puts it back. A unit is changed at most once in an episode, and one always stays.

Each mask is scored once and remembered. A game is valid as long as the weights do not change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from auber.errors import AuberError
from auber.search.methods import Mask

FloatArray = NDArray[np.float32]
BoolArray = NDArray[np.bool_]

_Array = TypeVar("_Array", FloatArray, BoolArray)


class GameError(AuberError, ValueError):
    """An action or a score that the rules of the game do not allow."""


class Step(NamedTuple):
    """One transition. Its arrays are read-only."""

    state: FloatArray  # (num_units,), before the action
    action: int
    reward: float
    next_state: FloatArray | None  # (num_units,); None: the episode is over
    next_legal: BoolArray  # (num_units + 1,); all false when the episode is over

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self.next_state is None


class PruningGame:
    """The game on a layer with this initial state; `score` maps a mask to the metric."""

    def __init__(
        self,
        state: FloatArray,
        score: Callable[[Mask], float],
        *,
        scale: float = 100.0,
        stop_reward: float = 0.0,
        unit_reward: float | Sequence[float] = 0.0,
        prior: Mask = (),
    ) -> None:
        initial = np.array(state, dtype=np.float32)
        if initial.ndim != 1 or initial.size == 0 or not np.isfinite(initial).all():
            raise GameError(
                "game: the initial state must be one finite number per unit, "
                f"found {initial.tolist()}"
            )
        self.num_units = initial.size
        self.stop = self.num_units
        self.scale = scale
        self.stop_reward = stop_reward
        self.unit_rewards = np.broadcast_to(np.array(unit_reward, dtype=np.float64), self.num_units)
        # the layer at the beginning, then one for each change, masks already known included
        self.rewards_asked = 1
        self._score = score
        self._scores: dict[Mask, float] = {}
        self._unpruned_state = freeze(initial)
        self.prior: Mask = tuple(sorted(prior))
        if not (set(prior) < set(range(self.num_units)) and len(set(prior)) == len(prior)):
            raise GameError(
                f"game: the prior must remove some of the {self.num_units} units, but not all, "
                f"found {list(prior)}"
            )
        self.removed = self.prior  # now, sorted
        self.over = False  # whether the episode has been stopped

    @property
    def initial_state(self) -> FloatArray:
        """The state before any action."""
        return self._state_without(self.prior)

    @property
    def scores(self) -> Mapping[Mask, float]:
        """The metric of every mask scored so far, in the order of scoring."""
        return MappingProxyType(self._scores)

    @property
    def rewards_computed(self) -> int:
        """How many different masks have been scored, the first included."""
        return len(self._scores)

    @property
    def score(self) -> float:
        """The metric now."""
        return self.metric(self.removed)

    @property
    def state(self) -> FloatArray:
        """The current state: 0 at the removed units."""
        return self._state_without(self.removed)

    def _state_without(self, removed: Mask) -> FloatArray:
        if not removed:
            return self._unpruned_state
        state = self._unpruned_state.copy()
        state[list(removed)] = 0.0
        return freeze(state)

    def changes(self, removed: Mask) -> Mask:
        """Return the units in which a mask differs from the prior, sorted."""
        return tuple(sorted({*self.prior} ^ {*removed}))

    def legal_actions(self) -> BoolArray:
        """Return which of the num_units + 1 actions are legal now; none if the episode is over."""
        legal = np.zeros(self.num_units + 1, dtype=np.bool_)
        if not self.over:
            legal[: self.num_units] = True
            if len(self.removed) == self.num_units - 1:  # the last unit cannot be removed
                legal[: self.num_units] = False
                legal[list(self.removed)] = True
            legal[list(self.changes(self.removed))] = False
            legal[self.stop] = True
        return freeze(legal)

    def reset(self) -> FloatArray:
        """Begin a new episode and return the initial state."""
        self.removed = self.prior
        self.over = False
        return self.initial_state

    def step(self, action: int) -> Step:
        """Take a legal action; an illegal one raises `GameError` and changes nothing."""
        legal = self.legal_actions()
        if not (0 <= action <= self.num_units and legal[action]):
            choices = ", ".join(map(str, np.flatnonzero(legal)))
            raise GameError(
                f"game: action {action} is illegal with {list(self.removed)} removed; "
                f"legal: {choices or 'none, the episode is over: call reset()'}"
            )
        before = self.state
        if action == self.stop:
            forced = legal.sum() == 1
            reward = 0.0 if forced else self.stop_reward
            self.over = True
            return Step(before, action, reward, None, self.legal_actions())
        after: Mask = tuple(sorted({*self.removed} ^ {action}))
        self.rewards_asked += 1
        gain = (self.metric(after) - self.metric(self.removed)) * self.scale
        reward = gain + float(self.unit_rewards[action])
        self.removed = after
        return Step(before, action, reward, self.state, self.legal_actions())

    def objective(self, removed: Mask) -> float:
        """Return the return of an episode that ends with this mask, up to a constant.

        The reward of stopping is left out.
        """
        changed = list(self.changes(removed))
        return self.metric(removed) * self.scale + float(self.unit_rewards[changed].sum())

    def best_mask(self) -> Mask:
        """Return the scored mask with the largest objective.

        Of equal masks it is the one with the fewest changes, because each change must gain
        something; then the one scored first.
        """
        return max(self._scores, key=lambda mask: (self.objective(mask), -len(self.changes(mask))))

    def metric(self, removed: Mask) -> float:
        """Return the metric of a mask; it is scored on the first request and remembered."""
        if removed not in self._scores:
            metric = float(self._score(removed))
            if not math.isfinite(metric):
                raise GameError(
                    f"game: the score must be a finite number, found {metric} with {list(removed)} "
                    "removed"
                )
            self._scores[removed] = metric
        return self._scores[removed]


def freeze(array: _Array) -> _Array:
    """Make an array read-only and return it."""
    array.flags.writeable = False
    return array
