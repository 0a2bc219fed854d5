"""Michel, Levy and Neubig (2019): remove the units on which the loss depends least.

Each unit's output is multiplied by a gate that stands at 1. A unit's importance is the mean over
rows of the absolute derivative of the row's loss by the gate, divided by the Euclidean norm of its
layer's importances. If all importances of a layer are 0, they stay 0.

Ours: one head stays in each layer, all units are removed at once, and neurons are ranked beside
heads if a target size is given; the layer's norm is then that of both.
"""

from __future__ import annotations

from auber.search.methods import Method, RankingChoice, RankingInputs
from auber.search.rankings.common import name_scores, scores_to_json, sum_gate_gradients
from auber.search.rankings.selection import UnitScores, divide_by_costs, select_units


def choose_plan(inputs: RankingInputs) -> RankingChoice:
    """Remove the units with the lowest importance."""
    scores = inputs.once("michel", lambda: unit_importance(inputs))
    details = {"importance": scores_to_json(scores.heads)} if scores.heads else {}
    ranked = divide_by_costs(inputs, scores) if inputs.num_removed is None else scores
    return RankingChoice(select_units(inputs, ranked), details)


def unit_importance(inputs: RankingInputs) -> UnitScores:
    """Return the importance of every present unit within its layer."""
    import torch

    heads, neurons = sum_gate_gradients(inputs, torch.abs, "importance of the units")
    # The number of rows cancels when an importance is divided by its layer's norm.
    norms = {
        layer: torch.cat([of[layer] for of in (heads, neurons) if layer in of]).norm() or 1.0
        for layer in {**heads, **neurons}
    }
    heads, neurons = (
        {layer: found / norms[layer] for layer, found in of.items()} for of in (heads, neurons)
    )
    return name_scores(inputs, heads, neurons)


METHODS = (
    Method(
        "michel",
        "removes the units that change the loss least",
        choose_plan=choose_plan,
        removes_neurons=True,
    ),
)
