"""Regret: how much better the best of all masks is than the best one found, by the number of different masks scored."""

from __future__ import annotations

import math
from collections.abc import Sequence


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
        missed[rank] * math.exp(_log_choose(rank, drawn - 1) - cases)
        for rank in range(drawn - 1, len(missed))
    )


def _log_choose(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)
