"""Exhaustive search: every mask of a layer is scored and the best is taken; what any search can reach at most.

Of masks that score the same, the one that removes fewest heads is taken, then the first in the order of the numbers. With all
scores at hand it costs no further reward to let other searches play on them: `regret` records how far below the optimum the
best mask of `auber`, of `greedy` and of drawing masks at random (in expectation, no mask twice) was after some numbers of
different rewards, and how far below it the agent's roll-out ended.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from auber.errors import ConfigError
from auber.methods import auber, greedy
from auber.methods.base import LayerChoice, LayerWork, Method
from auber.progress import Silent

Mask = tuple[int, ...]

MOST_HEADS = 16
BUDGETS = (50, 100, 200, 300)  # different rewards after which the searches are compared
_MASKS_PER_CALL = 256


def choose_layer(work: LayerWork) -> LayerChoice:
    """Score all masks that leave a head, and remove the heads of the best."""
    if len(work.heads) > MOST_HEADS:
        raise ConfigError(
            f"layer {work.layer}: method 'exhaustive' scores every mask and takes layers of at most {MOST_HEADS} heads, "
            f"found {len(work.heads)} heads; use greedy or auber"
        )
    masks = [mask for size in range(len(work.heads)) for mask in combinations(work.heads, size)]
    known: dict[Mask, float] = {}
    work.progress.begin(f"layer {work.layer}: searching", len(masks))
    for start in range(0, len(masks), _MASKS_PER_CALL):
        some = masks[start : start + _MASKS_PER_CALL]
        known.update(zip(some, work.score_many(some), strict=True))
        work.progress.step(len(known), f"best {max(known.values()):.4f}")
    best = max(masks, key=known.__getitem__)  # the first of the best: they come by size, then by number
    regret = _regret(work, known, known[best])
    work.progress.end()
    return LayerChoice(
        removed=best,
        rewards_asked=len(masks),
        rewards_computed=len(masks),
        details={
            "unpruned_score": known[()],
            "best": list(best),
            "best_score": known[best],
            "regret": regret,
        },
    )


def _regret(work: LayerWork, known: dict[Mask, float], optimum: float) -> dict[str, Any]:
    """How far below the optimum other searches are, by the number of different rewards; in units of the metric."""

    def look_up(masks: Sequence[Mask]) -> list[float]:
        return [known[tuple(sorted(mask))] for mask in masks]

    played = replace(work, score_many=look_up, progress=Silent())
    agent, climb = auber.choose_layer(played), greedy.choose_layer(played)
    return {
        "auber": {str(budget): optimum - best_after(agent.details["curve"], budget) for budget in BUDGETS},
        "auber_rollout": optimum - agent.details["rollout_score"],
        "auber_rewards": agent.rewards_computed,
        "greedy": {str(budget): optimum - best_after(climb.details["curve"], budget) for budget in BUDGETS},
        "greedy_rewards": climb.rewards_computed,
        "random": {str(budget): expected_regret(list(known.values()), budget) for budget in BUDGETS},
    }


def best_after(curve: Sequence[Sequence[float]], rewards: int) -> float:
    """The best score after so many rewards, from a curve of (rewards, best score) at each improvement."""
    return max(score for scored, score in curve if scored <= rewards)


def expected_regret(scores: Sequence[float], rewards: int) -> float:
    """How far below the best of all scores the best of so many is on average: the first score, the others at random."""
    optimum = max(scores)
    missed = sorted((optimum - max(score, scores[0]) for score in scores[1:]), reverse=True)
    drawn = min(rewards - 1, len(missed))
    if drawn == 0:
        return optimum - scores[0]
    # The best drawn is the one of this rank in C(rank, drawn - 1) of C(all, drawn) cases; logarithms, for both are huge.
    cases = _log_choose(len(missed), drawn)
    return math.fsum(
        missed[rank] * math.exp(_log_choose(rank, drawn - 1) - cases) for rank in range(drawn - 1, len(missed))
    )


def _log_choose(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)


METHODS = (Method("exhaustive", "every mask of a layer is scored and the best taken", choose_layer),)
