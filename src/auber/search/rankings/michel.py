"""Michel, Levy and Neubig (2019): a head goes first if the loss hardly depends on it.

Each head's output is multiplied by a gate that stands at 1. A head's importance is the mean over rows of the absolute
derivative of that row's own loss by the head's gate, divided by the Euclidean norm of its layer's importances, as they do
when they compare heads of different layers. Every row has gates of its own, so that one backward pass over a batch gives
all its rows' derivatives. A layer whose heads all have importance 0 keeps those zeros. Ours: one head stays in each layer,
and the heads are removed in one go.
"""

from __future__ import annotations

from auber.search.methods import Method, RankingChoice, RankingWork
from auber.search.rankings.ranking import remove_lowest, scores_to_json

# Tokens a pass: the backward pass of a base-size encoder then needs some 2 GB.
_TOKENS_PER_BATCH = 2048


def choose_plan(work: RankingWork) -> RankingChoice:
    """Remove the heads of least importance."""
    scores = head_importance(work)
    return RankingChoice(
        remove_lowest(scores, work.num_removed), {"importance": scores_to_json(scores)}
    )


def head_importance(work: RankingWork) -> dict[int, dict[int, float]]:
    """The importance of every present head within its layer, by layer."""
    import torch

    from auber.models.encoders import encoder_of
    from auber.models.surgery import gated_heads
    from auber.search.rankings.passes import frozen_copy, padded_batches, present_heads, row_losses

    model = frozen_copy(work)
    heads = present_heads(encoder_of(model))
    sums = {
        layer: torch.zeros(len(present), dtype=torch.float64) for layer, present in heads.items()
    }
    work.progress.begin("importance of the heads", len(work.rows))
    done = 0
    for inputs, targets in padded_batches(work.rows, _TOKENS_PER_BATCH, work.hardware.device):
        num_rows = len(inputs["input_ids"])
        gates = {
            layer: torch.ones(
                num_rows, len(present), device=work.hardware.device, requires_grad=True
            )
            for layer, present in heads.items()
        }
        with gated_heads(model, gates):
            loss = row_losses(model, work.rows.kind, inputs, targets).sum()
            derivatives = torch.autograd.grad(
                loss, list(gates.values())
            )  # each (rows, present_heads)
        for layer, derivative in zip(gates, derivatives, strict=True):
            sums[layer] += derivative.abs().sum(0).cpu()
        done += num_rows
        work.progress.step(done)
    work.progress.end()
    # The number of rows cancels out of an importance divided by its layer's norm.
    normalised = {
        layer: importance / (importance.norm() or 1.0) for layer, importance in sums.items()
    }
    return {
        layer: dict(zip(present, normalised[layer].tolist(), strict=True))
        for layer, present in heads.items()
    }


METHODS = (
    Method("michel", "the heads that the loss depends on least go", choose_plan=choose_plan),
)
