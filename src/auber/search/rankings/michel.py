"""Michel, Levy and Neubig (2019): remove the heads on which the loss depends least.

Each head's output is multiplied by a gate that stands at 1. A head's importance is the mean over
rows of the absolute derivative of the row's loss by the gate, divided by the Euclidean norm of its
layer's importances. Every row has its own gates, so one backward pass over a batch gives the
derivatives of all its rows. If all importances of a layer are 0, they stay 0.

Ours: one head stays in each layer, and all heads are removed at once.
"""

from __future__ import annotations

from auber.search.methods import Method, RankingChoice, RankingInputs
from auber.search.rankings.common import (
    frozen_copy,
    padded_batches,
    present_heads,
    remove_lowest,
    row_losses,
    scores_to_json,
)

# Per pass: the backward pass of a base-size encoder then needs about 2 GB.
_TOKENS_PER_BATCH = 2048


def choose_plan(inputs: RankingInputs) -> RankingChoice:
    """Remove the heads with the lowest importance."""
    scores = head_importance(inputs)
    plan = remove_lowest(scores, inputs.num_removed)
    return RankingChoice(plan, {"importance": scores_to_json(scores)})


def head_importance(inputs: RankingInputs) -> dict[int, dict[int, float]]:
    """Return the importance of every present head within its layer, by layer."""
    import torch

    from auber.models.encoders import encoder_of
    from auber.models.surgery import gated

    device = inputs.hardware.device
    model = frozen_copy(inputs)
    heads = present_heads(encoder_of(model))
    sums = {
        layer: torch.zeros(len(present), dtype=torch.float64) for layer, present in heads.items()
    }
    inputs.progress.begin("importance of the heads", len(inputs.rows))
    done = 0
    for batch, targets in padded_batches(inputs, _TOKENS_PER_BATCH):
        num_rows = len(batch["input_ids"])
        gates = {
            layer: torch.ones(num_rows, len(present), device=device, requires_grad=True)
            for layer, present in heads.items()
        }
        with gated(model, gates):
            loss = row_losses(model, inputs.rows.kind, batch, targets).sum()
            derivatives = torch.autograd.grad(loss, list(gates.values()))
        for layer, derivative in zip(gates, derivatives, strict=True):  # (rows, present_heads)
            sums[layer] += derivative.abs().sum(0).cpu()
        done += num_rows
        inputs.progress.step(done)
    inputs.progress.end()
    # The number of rows cancels when an importance is divided by its layer's norm.
    importance = {layer: found / (found.norm() or 1.0) for layer, found in sums.items()}
    return {
        layer: dict(zip(present, importance[layer].tolist(), strict=True))
        for layer, present in heads.items()
    }


METHODS = (
    Method("michel", "removes the heads that change the loss least", choose_plan=choose_plan),
)
