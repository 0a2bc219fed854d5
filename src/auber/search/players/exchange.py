"""Exchange search: improve the plan of a whole model at constant cost.

A step exchanges blocks of some slots for blocks of others (`auber.search.blocks`) such that the
plan costs no more than the target. Half of the steps let the ranking decide which block of a slot
goes or comes back; the others exchange any blocks. The prediction of `surrogate`, made from all
plans scored, chooses among many steps from the best plans known. A thousand plans are affordable
where a score takes a forward pass.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from auber.errors import ModelError, PlanError
from auber.models.plan import PruningPlan
from auber.search.blocks import Flags, Layout, Slot
from auber.search.players.surrogate import predict
from auber.system import seeds
from auber.system.progress import Progress

if TYPE_CHECKING:
    from auber.models.costs import UnitCosts

_PARENTS = 8  # the plans that exchanges begin from
_POOL = 256  # exchanges to choose among, for each batch
_PENALTY = 0.03
_ONCE_MORE = 0.5  # the chance that a step has a further exchange
_BY_RANKING = 0.5  # share of steps that follow the ranking


@dataclass(frozen=True)
class ExchangeOutcome:
    """The best plan found."""

    plan: PruningPlan
    score: float
    start_score: float
    rewards: int  # different plans scored, the start included
    seconds: float


def exchange(
    start: PruningPlan,
    slots: Sequence[Slot],
    costs: UnitCosts,
    score_many: Callable[[Sequence[PruningPlan]], list[float]],
    rewards: int,
    *,
    keep: float,
    seed: int,
    gone: PruningPlan | None = None,
    batch: int = 8,
    progress: Progress | None = None,
) -> ExchangeOutcome:
    """Return the best plan of the target size that exchanges lead to, of `rewards` plans scored.

    `start` removes whole blocks of `slots` (`make_slots`) and leaves at most the share `keep` of
    the multiply-adds; `gone` are units that the model has lost before. `score_many` returns the
    metric of each plan, larger is better.
    """
    progress, began = progress or Progress(), time.monotonic()
    layout, draw = Layout(slots), seeds.generator(seed, "exchange")
    first = layout.flags(start)
    saved_before = round((1 - costs.share(gone or PruningPlan())) * costs.total)
    least = int(np.ceil((1 - keep) * costs.total - 1e-9 * costs.total)) - saved_before
    if layout.saved(first) < least:
        left = costs.share((gone or PruningPlan()) | start)
        raise PlanError(
            f"exchange: the plan to start from must leave at most {keep:g} of the multiply-adds, "
            f"found {left:.4f}; remove more, or raise the target"
        )
    flags: list[Flags] = []
    scores: list[float] = []
    known: set[bytes] = set()

    def add(new: Sequence[Flags]) -> None:
        found = score_many([layout.plan(each) for each in new])
        for score in found:
            if not math.isfinite(score):
                raise ModelError(
                    f"exchange: a score must be a finite number, found {score}; check the model's "
                    "weights"
                )
        scores.extend(map(float, found))
        flags.extend(new)
        known.update(each.tobytes() for each in new)
        progress.step(len(scores), f"best {max(scores):.4f}")

    progress.begin("searching by exchanges", rewards)
    add([first])
    while (room := rewards - len(scores)) > 0:
        values = np.array(scores)
        parents = np.argsort(-values, kind="stable")[:_PARENTS]
        chances = 1 / np.arange(1, len(parents) + 1)
        chances /= chances.sum()
        pool: dict[bytes, Flags] = {}
        for _ in range(_POOL):
            parent = flags[draw.choice(parents, p=chances)]
            step = _exchange_some(draw, layout, parent, least)
            if step.tobytes() not in known:
                pool[step.tobytes()] = step
        if not pool:
            break  # every plan nearby is known
        candidates = np.array([*pool.values()])
        predicted = predict(np.array(flags), values, candidates, _PENALTY)
        best = np.argsort(-predicted, kind="stable")[: min(batch, room)]
        add([candidates[place] for place in best])
    progress.end()
    place = int(np.argmax(scores))
    return ExchangeOutcome(
        plan=layout.plan(flags[place]),
        score=scores[place],
        start_score=scores[0],
        rewards=len(scores),
        seconds=time.monotonic() - began,
    )


def _exchange_some(draw: np.random.Generator, layout: Layout, flags: Flags, least: int) -> Flags:
    """Return the flags after random exchanges that leave enough saved and no room unused."""
    after, ranks = flags.copy(), draw.random() < _BY_RANKING
    more = True
    while more:
        back = _pick(draw, layout, after, -1, ranks=ranks)
        if back is not None:
            after[back] = False
        while layout.saved(after) < least:
            removable = ~after & (layout.left(after) > 1)[layout.slot_of]
            if back is not None:
                removable[back] = False
            gone = _pick(draw, layout, removable, 0, ranks=ranks)
            if gone is None:
                return flags
            after[gone] = True
        more = draw.random() < _ONCE_MORE
    while True:
        fits = after & (layout.costs <= layout.saved(after) - least)
        back = _pick(draw, layout, fits, -1, ranks=ranks)
        if back is None:
            return after
        after[back] = False


def _pick(
    draw: np.random.Generator, layout: Layout, among: Flags, end: int, *, ranks: bool
) -> int | None:
    """Return one of these blocks: the first (0) or last (-1) of a random slot if `ranks`, or any.

    None if there are none.
    """
    blocks = np.flatnonzero(among)
    if not len(blocks):
        return None
    if not ranks:
        return int(draw.choice(blocks))
    slots = layout.slot_of[blocks]
    return int(blocks[slots == draw.choice(slots)][end])
