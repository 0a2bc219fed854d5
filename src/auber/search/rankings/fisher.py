"""Fisher information: remove the units whose gates the loss is least sensitive to, for their cost.

Each unit's output is multiplied by a gate that stands at 1. A unit's score is the mean over rows of
the squared derivative of the row's loss by the gate, an estimate of the diagonal of the Fisher
information (Kwon et al. 2022). For a target size it is divided by the unit's multiply-adds.
"""

from __future__ import annotations

from auber.search.methods import Method, RankingChoice, RankingInputs
from auber.search.rankings.common import name_scores, scores_to_json, sum_gate_gradients
from auber.search.rankings.selection import UnitScores, divide_by_costs, select_units


def choose_plan(inputs: RankingInputs) -> RankingChoice:
    """Remove the units with the least information for their cost."""
    scores = inputs.once("fisher", lambda: unit_information(inputs))
    details = {"importance": scores_to_json(scores.heads)} if scores.heads else {}
    ranked = divide_by_costs(inputs, scores) if inputs.num_removed is None else scores
    return RankingChoice(select_units(inputs, ranked), details)


def unit_information(inputs: RankingInputs) -> UnitScores:
    """Return the mean squared gradient of every present unit's gate."""
    import torch

    heads, neurons = (
        {layer: found / len(inputs.rows) for layer, found in of.items()}
        for of in sum_gate_gradients(inputs, torch.square, "information of the units")
    )
    return name_scores(inputs, heads, neurons)


METHODS = (
    Method(
        "fisher",
        "removes the units whose gates have the smallest squared gradients for their cost",
        choose_plan=choose_plan,
        removes_neurons=True,
    ),
)
