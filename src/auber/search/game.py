"""The pruning game of one layer: remove heads one at a time, or stop.

With H heads there are H + 1 actions: 0 to H - 1 remove that head, H stops. A removal pays the change of the metric times
`scale`, and `head_reward` for the head (0 in the paper; one number for all, or each its own); stopping pays `stop_reward`. A head
cannot be removed twice and the last head cannot be removed, so after H - 1 removals stopping is the only legal action; that
forced stop pays 0 whatever `stop_reward` is, because nobody chose it.
The state is a copy of the initial one with 0 at the removed heads; after a stop there is none. (The paper's listing
overwrites the stored state and lets a head be chosen again.)

A game may also begin with some heads removed (`given`; none in the paper). The action of such a head then puts it back, and
pays its `head_reward` likewise. A head is changed once at most, whichever way, and one is left at any time.

The metric of a mask is asked for once: the game remembers every mask it has scored. A game belongs to one layer as it is
now; when the weights change, make a new one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from auber.errors import AuberError

FloatArray = NDArray[np.float32]
BoolArray = NDArray[np.bool_]
Mask = tuple[int, ...]  # the removed heads, in order

_Array = TypeVar("_Array", FloatArray, BoolArray)


class GameError(AuberError, ValueError):
    """A move or a score that the game's rules do not allow."""


class Step(NamedTuple):
    """One transition. Its arrays are read-only."""

    state: FloatArray  # (num_heads,), before the action
    action: int
    reward: float
    next_state: FloatArray | None  # (num_heads,); None: the episode is over
    next_legal: BoolArray  # (num_heads + 1,); all false when the episode is over

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self.next_state is None


class PruningGame:
    """The game on a layer with the given initial state; `score` maps the removed heads, sorted, to the metric."""

    def __init__(
        self,
        state: FloatArray,
        score: Callable[[Mask], float],
        *,
        scale: float = 100.0,
        stop_reward: float = 0.0,
        head_reward: float | Sequence[float] = 0.0,
        given: Mask = (),
    ) -> None:
        initial = np.array(state, dtype=np.float32)
        if initial.ndim != 1 or initial.size == 0 or not np.isfinite(initial).all():
            raise GameError(
                f"game: the initial state must be one finite number per head, found {initial.tolist()}"
            )
        self.num_heads = initial.size
        self.stop = self.num_heads
        self.scale = scale
        self.stop_reward = stop_reward
        self.head_rewards = np.broadcast_to(np.array(head_reward, dtype=np.float64), self.num_heads)
        self.rewards_asked = (
            1  # of the layer as it begins; then one for each change, known masks included
        )
        self._score = score
        self._scores: dict[Mask, float] = {}
        self._whole = _frozen(initial)
        self.given: Mask = tuple(sorted(given))
        if not (set(self.given) < set(range(self.num_heads)) and len(set(given)) == len(given)):
            raise GameError(
                f"game: the heads it begins without must be some of its {self.num_heads}, found {list(given)}"
            )
        self._removed = self.given
        self._over = False

    @property
    def initial_state(self) -> FloatArray:
        """The state before any action."""
        return self._state_without(self.given)

    @property
    def removed(self) -> Mask:
        """The heads removed now, sorted."""
        return self._removed

    @property
    def over(self) -> bool:
        """Whether the episode has been stopped."""
        return self._over

    @property
    def scores(self) -> Mapping[Mask, float]:
        """The metric of every mask scored so far, in the order of scoring."""
        return MappingProxyType(self._scores)

    @property
    def rewards_computed(self) -> int:
        """How many different masks have been scored, the one it begins with included."""
        return len(self._scores)

    @property
    def state(self) -> FloatArray:
        """The present state: 0 at the removed heads."""
        return self._state_without(self._removed)

    def _state_without(self, removed: Mask) -> FloatArray:
        if not removed:
            return self._whole
        state = self._whole.copy()
        state[list(removed)] = 0.0
        return _frozen(state)

    def departures(self, removed: Mask) -> Mask:
        """The heads that are otherwise than the game begins with, sorted."""
        return tuple(sorted({*self.given} ^ {*removed}))

    def legal_actions(self) -> BoolArray:
        """Which of the num_heads + 1 actions may be taken now; none when the episode is over."""
        legal = np.zeros(self.num_heads + 1, dtype=np.bool_)
        if not self._over:
            legal[: self.num_heads] = True
            if len(self._removed) == self.num_heads - 1:  # the last head cannot be removed
                legal[: self.num_heads] = False
                legal[list(self._removed)] = True
            legal[list(self.departures(self._removed))] = False
            legal[self.stop] = True
        return _frozen(legal)

    def reset(self) -> FloatArray:
        """Make all heads as they were and return the initial state."""
        self._removed = self.given
        self._over = False
        return self.initial_state

    def step(self, action: int) -> Step:
        """Take a legal action; any other raises `GameError` and changes nothing."""
        legal = self.legal_actions()
        if not (0 <= action <= self.num_heads and legal[action]):
            choices = (
                ", ".join(str(choice) for choice in np.flatnonzero(legal))
                or "none, the episode is over: call reset()"
            )
            raise GameError(
                f"game: action {action} is illegal with heads {list(self._removed)} removed; legal: {choices}"
            )
        before = self.state
        if action == self.stop:
            forced = legal.sum() == 1
            reward = 0.0 if forced else self.stop_reward
            self._over = True
            return Step(before, action, reward, None, self.legal_actions())
        after: Mask = tuple(sorted({*self._removed} ^ {action}))
        self.rewards_asked += 1
        reward = (self.metric(after) - self.metric(self._removed)) * self.scale + float(
            self.head_rewards[action]
        )
        self._removed = after
        return Step(before, action, reward, self.state, self.legal_actions())

    def worth(self, removed: Mask) -> float:
        """What an episode that ends with these heads removed pays, up to a constant and the pay of stopping."""
        return self.metric(removed) * self.scale + float(
            self.head_rewards[list(self.departures(removed))].sum()
        )

    def metric(self, removed: Mask) -> float:
        """The metric with these heads removed; scored on the first request, remembered afterwards."""
        if removed not in self._scores:
            metric = float(self._score(removed))
            if not math.isfinite(metric):
                raise GameError(
                    f"game: the score must be a finite number, found {metric} with heads {list(removed)} removed"
                )
            self._scores[removed] = metric
        return self._scores[removed]


def _frozen(array: _Array) -> _Array:
    array.flags.writeable = False
    return array
