"""Fisher information: remove the units whose gates the loss is least sensitive to, for their cost.

Each unit's output is multiplied by a gate that stands at 1. A unit's score is the mean over rows of
the squared derivative of the row's loss by the gate, an estimate of the diagonal of the Fisher
information (Kwon et al. 2022). For a target size it is divided by the unit's multiply-adds.
"""

from __future__ import annotations

from functools import partial

from auber.search.methods import Method, RankingInputs
from auber.search.rankings.common import choose_by_importance, name_units, sum_gate_gradients
from auber.search.rankings.selection import UnitScores


def unit_information(inputs: RankingInputs) -> UnitScores:
    """Return the mean squared gradient of every present unit's gate."""
    import torch

    sums = sum_gate_gradients(inputs, torch.square, "ranking heads and neurons")
    return name_units(inputs, {site: found / len(inputs.rows) for site, found in sums.items()})


choose_plan = partial(choose_by_importance, name="fisher", measure=unit_information)

METHODS = (
    Method(
        "fisher",
        "removes the units whose gates have the smallest squared gradients for their cost",
        choose_plan=choose_plan,
        removes_neurons=True,
    ),
)
