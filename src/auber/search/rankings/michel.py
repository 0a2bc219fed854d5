"""Michel, Levy and Neubig (2019): remove the units on which the loss depends least.

Each unit's output is multiplied by a gate that stands at 1. A unit's importance is the mean over
rows of the absolute derivative of the row's loss by the gate, divided by the Euclidean norm of its
layer's importances. If all importances of a layer are 0, they stay 0.

Ours: one head stays in each layer, all units are removed at once, and neurons are ranked beside
heads if a target size is given; the layer's norm is then that of both.
"""

from __future__ import annotations

from functools import partial

from auber.search.methods import Method, RankingInputs
from auber.search.rankings.common import choose_by_importance, name_units, sum_gate_gradients
from auber.search.rankings.selection import UnitScores


def unit_importance(inputs: RankingInputs) -> UnitScores:
    """Return the importance of every present unit within its layer."""
    import torch

    sums = sum_gate_gradients(inputs, torch.abs, "ranking heads and neurons")
    # The number of rows cancels when an importance is divided by its layer's norm.
    norms = {
        layer: torch.cat([found for (_, at), found in sums.items() if at == layer]).norm() or 1.0
        for _, layer in sums
    }
    return name_units(inputs, {site: found / norms[site[1]] for site, found in sums.items()})


choose_plan = partial(choose_by_importance, name="michel", measure=unit_importance)

METHODS = (
    Method(
        "michel",
        "removes the units that change the loss least",
        choose_plan=choose_plan,
        removes_neurons=True,
    ),
)
