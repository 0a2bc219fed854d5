"""Voita et al. (2019): train a random gate on each head; heads that the task can spare close.

The gates are trained with the task's loss plus a penalty times the expected number of open gates
(`gates`). The penalty is searched until about as many gates close as heads are to go. The heads
with the lowest gates go, and one stays in each layer.

Ours: the weights stay fixed and only the gates learn. Voita et al. train both; here that would be
tuning that other methods do not get. For a target size, blocks of neurons have gates too, a gate
counts by its multiply-adds, and the penalty is searched until the closed gates have the share of
multiply-adds that is to go.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from auber.search.methods import Method, RankingChoice, RankingInputs
from auber.search.rankings.common import head_scores_to_json
from auber.search.rankings.selection import costs_of, select_units

if TYPE_CHECKING:
    from auber.search.rankings.gates import Trial

_FIRST_PENALTY = 0.01
_PENALTY_FACTOR = 10.0  # between penalties, until the wanted number lies between two of them
_TOLERANCE = 0.02  # share of all by which what closes and what is to be removed may differ


def choose_plan(inputs: RankingInputs) -> RankingChoice:
    """Find the penalty that closes about the wanted number of gates, and remove the lowest."""
    from auber.search.rankings.gates import GateTraining
    from auber.training.cuda_graphs import capture_for

    trials: list[Trial] = []
    trained: list[float] = []
    progress, most_trials = inputs.progress, inputs.config.voita.trials
    with closing(GateTraining(inputs, capture_for(inputs.hardware.device))) as training:
        progress.begin("training gates", most_trials * training.steps)

        def train(penalty: float) -> Trial:
            done = len(trials) * training.steps
            note = _describe(trials[-1]) if trials else ""

            def compute() -> Trial:
                trained.append(penalty)
                return training.train(penalty, lambda step: progress.step(done + step, note))

            # Every training begins with the same state, so target sizes share those of a penalty.
            trials.append(inputs.once(("voita", penalty), compute))
            return trials[-1]

        if inputs.num_removed is None:
            now = costs_of(inputs.encoder, inputs.config.max_length).share(inputs.encoder.removed)
            target, whole = now - inputs.config.size.share, 1.0
        else:
            target, whole = float(inputs.num_removed), float(training.num_gates)
        chosen = search_penalty(
            train, training.measure_closed, target, _TOLERANCE * whole, most_trials
        )
        # A penalty may close other gates than those of the units that are removed.
        progress.step(len(trials) * training.steps, f"{_describe(chosen)}; the lowest go")
        progress.end()
    scores = training.score(chosen)
    details = {
        "gates": head_scores_to_json(scores),
        "penalty": chosen.penalty,
        "trials": [trial.to_json() for trial in trials],
        "gate_steps": len(trained) * training.steps,
    }
    return RankingChoice(select_units(inputs, scores), details)


def _describe(trial: Trial) -> str:
    return f"penalty {trial.penalty:.2g} closed {trial.closed}"


def search_penalty(
    train: Callable[[float], Trial],
    measure: Callable[[Trial], float],
    target: float,
    tolerance: float,
    most_trials: int,
) -> Trial:
    """Return the trial whose closed gates come closest to the target.

    The penalty changes by a factor until the target lies between two trials; then its logarithm is
    bisected.
    """
    penalty, too_low, too_high = _FIRST_PENALTY, 0.0, math.inf
    best: Trial | None = None
    for _ in range(most_trials):
        trial = train(penalty)
        closed = measure(trial)
        if best is None or abs(closed - target) < abs(measure(best) - target):
            best = trial
        if abs(closed - target) <= tolerance:
            break
        if closed < target:
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
        "trains a gate per unit with a penalty; removes the lowest",
        choose_plan=choose_plan,
        removes_neurons=True,
    ),
)
