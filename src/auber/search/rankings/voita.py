"""Voita et al. (2019): train a random gate on each head; heads that the task can spare close.

The gates are trained with the task's loss plus a penalty times the expected number of open gates
(`gates`). The penalty is searched until about as many gates close as heads are to go. The heads
with the lowest gates go, and one stays in each layer.

Ours: the weights stay fixed and only the gates learn. Voita et al. train both; here that would be
tuning that other methods do not get.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from auber.search.methods import Method, RankingChoice, RankingInputs
from auber.search.rankings.common import remove_lowest, scores_to_json

if TYPE_CHECKING:
    from auber.search.rankings.gates import Trial

_FIRST_PENALTY = 0.01
_PENALTY_FACTOR = 10.0  # between penalties, until the wanted number lies between two of them
_TOLERANCE = 0.02  # share of all heads by which closed gates and heads to remove may differ


def choose_plan(inputs: RankingInputs) -> RankingChoice:
    """Find the penalty that closes about the wanted number of gates, and remove the lowest."""
    from auber.search.rankings.gates import GateTraining
    from auber.training.cuda_graphs import capture_for

    trials: list[Trial] = []
    progress, most_trials = inputs.progress, inputs.config.voita.trials
    with closing(GateTraining(inputs, capture_for(inputs.hardware.device))) as training:
        progress.begin("training gates", most_trials * training.steps)

        def train(penalty: float) -> Trial:
            done = len(trials) * training.steps
            note = _describe(trials[-1]) if trials else ""
            trials.append(training.train(penalty, lambda step: progress.step(done + step, note)))
            return trials[-1]

        chosen = search_penalty(train, inputs.num_removed, training.num_gates, most_trials)
        # A penalty may close another number of gates than heads that are removed.
        note = f"{_describe(chosen)}; the {inputs.num_removed} lowest go"
        progress.step(len(trials) * training.steps, note)
        progress.end()
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
    return RankingChoice(remove_lowest(scores, inputs.num_removed), details)


def _describe(trial: Trial) -> str:
    return f"penalty {trial.penalty:.2g} closed {trial.closed}"


def search_penalty(
    train: Callable[[float], Trial], num_closed: int, num_gates: int, most_trials: int
) -> Trial:
    """Return the trial that comes closest to closing this many gates.

    The penalty changes by a factor until the number lies between two trials; then its logarithm is
    bisected.
    """
    penalty, too_low, too_high = _FIRST_PENALTY, 0.0, math.inf
    best: Trial | None = None
    for _ in range(most_trials):
        trial = train(penalty)
        if best is None or abs(trial.closed - num_closed) < abs(best.closed - num_closed):
            best = trial
        if abs(trial.closed - num_closed) <= _TOLERANCE * num_gates:
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
        "trains a gate per head with a penalty; removes the lowest",
        choose_plan=choose_plan,
    ),
)
