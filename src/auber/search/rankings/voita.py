"""Voita et al. (2019): a random gate on each head, trained to close where the task can do without the head.

The gates are trained with the task's loss plus `penalty` times the expected number of open gates (`gates`). The penalty is
searched until about as many gates close as heads are to go; the gates' locations then decide: the lowest go, and one head
stays in each layer.

Ours: the weights stay as they are and only the gates learn, so that this method gets no tuning that the others do not get
(Voita et al. train both).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from auber.search.methods import Method, RankingChoice, RankingWork
from auber.search.rankings.ranking import remove_lowest, scores_to_json

if TYPE_CHECKING:
    from auber.search.rankings.gates import Trial

_START_PENALTY = 0.01
_PENALTY_FACTOR = 10.0  # between two penalties until the number wanted lies between theirs
_CLOSE_ENOUGH = (
    0.02  # of all heads: the search ends when closed gates and heads to remove differ by no more
)


def choose_plan(work: RankingWork) -> RankingChoice:
    """Search the penalty that closes about as many gates as heads are to go, and remove the lowest gates."""
    from auber.search.rankings.gates import GateTraining
    from auber.training.cuda_graphs import recorder_for

    trials: list[Trial] = []
    with closing(GateTraining(work, recorder_for(work.hardware.device))) as training:
        work.progress.begin("training gates", work.config.voita.trials * training.steps)

        def train(penalty: float) -> Trial:
            begun = len(trials) * training.steps
            trials.append(
                training.train(
                    penalty, lambda step: work.progress.step(begun + step, _note(trials))
                )
            )
            return trials[-1]

        chosen = search_penalty(
            train, work.num_removed, training.num_gates, work.config.voita.trials
        )
        # Whatever the penalty closes, the number that was asked for goes: a last note that says so.
        ending = (
            f"penalty {chosen.penalty:.2g} closed {chosen.closed}; the {work.num_removed} lowest go"
        )
        work.progress.step(len(trials) * training.steps, ending)
        work.progress.end()
    locations = iter(chosen.locations)
    scores = {
        layer: {head: next(locations) for head in present}
        for layer, present in training.heads.items()
    }
    details = {
        "gates": scores_to_json(scores),
        "penalty": chosen.penalty,
        "trials": [trial.to_json() for trial in trials],
        "gate_steps": len(trials) * training.steps,
    }
    return RankingChoice(remove_lowest(scores, work.num_removed), details)


def _note(trials: list[Trial]) -> str:
    """The last trial in a few words."""
    return f"penalty {trials[-1].penalty:.2g} closed {trials[-1].closed}" if trials else ""


def search_penalty(
    train: Callable[[float], Trial], num_closed: int, num_gates: int, most_trials: int
) -> Trial:
    """The trial that closes most nearly `num_closed` gates: steps by a factor at first, then bisection of logarithms."""
    penalty, too_low, too_high = _START_PENALTY, 0.0, math.inf
    best: Trial | None = None
    for _ in range(most_trials):
        trial = train(penalty)
        if best is None or abs(trial.closed - num_closed) < abs(best.closed - num_closed):
            best = trial
        if abs(trial.closed - num_closed) <= _CLOSE_ENOUGH * num_gates:
            break
        if trial.closed < num_closed:
            too_low = penalty
        else:
            too_high = penalty
        if too_high == math.inf:
            penalty *= _PENALTY_FACTOR
        elif too_low == 0.0:
            penalty /= _PENALTY_FACTOR
        else:
            penalty = math.sqrt(too_low * too_high)
    assert best is not None, "voita.trials is at least 1"
    return best


METHODS = (
    Method(
        "voita",
        "gates trained with a penalty on open ones; the heads of the lowest go",
        choose_plan=choose_plan,
    ),
)
