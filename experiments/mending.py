"""Heads removed so that those that stay say what they can of what goes.

What the removed heads of a layer would have written is foretold, by linear regression over the tokens of train, from what the kept
ones compute, and added to their output projection: one closed form of the covariance of the layer's heads. `redundant` ranks heads
by the same: first goes what the others foretell best.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from auber.devices import Hardware
from auber.encoders import encoder_of
from auber.mending import Mending, learn_mending, remove_mended
from auber.plan import PruningPlan
from auber.tasks.encoding import EncodedRows

Facts = tuple[
    Mending, Tensor, float
]  # of a layer; the Gram matrix of its output projection, and the variance of what it writes


def remove_all_mended(model: Any, plan: PruningPlan, rows: EncodedRows, hardware: Hardware) -> None:
    """Remove a plan's heads, layer by layer, each mended by what reaches it then."""
    for layer, heads in sorted(plan.items()):
        remove_mended(model, layer, heads, learn_mending(model, layer, rows, hardware))


def redundant(model: Any, num_heads: int, rows: EncodedRows, hardware: Hardware) -> PruningPlan:
    """The plan that leaves least unsaid: of what each layer's heads write, the share of the variance that the others do not foretell.

    Greedy, a head at a time from the layer that loses least by its next one; every layer keeps a head.
    """
    model = copy.deepcopy(model)
    encoder = encoder_of(model)
    gone: dict[int, list[int]] = {layer: [] for layer in range(encoder.num_layers)}
    facts = {}
    for layer in gone:
        weight = encoder.parts(layer).output.weight.detach().double()
        mending = learn_mending(model, layer, rows, hardware)
        facts[layer] = (mending, weight.T @ weight, float((weight @ mending.covariance * weight).sum()))
    lost = dict.fromkeys(gone, 0.0)
    nexts = {layer: _next(facts[layer], gone[layer], encoder.num_heads) for layer in gone}
    for _ in range(num_heads):
        layer = min(nexts, key=lambda layer: nexts[layer][0] - lost[layer])
        lost[layer], head = nexts[layer]
        gone[layer].append(head)
        nexts[layer] = _next(facts[layer], gone[layer], encoder.num_heads)
    return PruningPlan({layer: tuple(sorted(heads)) for layer, heads in gone.items() if heads})


def _next(facts: Facts, gone: list[int], num_heads: int) -> tuple[float, int]:
    """The head that loses least beside those gone, after what is lost then."""
    left = [head for head in range(num_heads) if head not in gone]
    if len(left) < 2:
        return float("inf"), -1
    return min((_unsaid(facts, [*gone, head]), head) for head in left)


def _unsaid(facts: Facts, heads: list[int]) -> float:
    """The share of what a layer's heads write, by variance, that is lost without some of them."""
    mending, gram, whole = facts
    matrix, _ = mending.stand_in(heads)
    missed = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device) - matrix
    return float((missed @ mending.covariance @ missed.T * gram).sum()) / whole
