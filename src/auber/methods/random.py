"""Random pruning: heads drawn uniformly among all that may go; one head stays in each layer."""

from __future__ import annotations

from auber.methods.base import Method, RankingChoice, RankingWork
from auber.plan import PruningPlan


def choose_plan(work: RankingWork) -> RankingChoice:
    """Draw the heads one after the other, passing over the last head of a layer."""
    left = {layer: len(work.encoder.present(layer)) for layer in range(work.encoder.num_layers)}
    candidates = [(layer, head) for layer in left for head in work.encoder.present(layer)]
    removed: dict[int, list[int]] = {}
    for index in work.random.permutation(len(candidates)):
        if sum(map(len, removed.values())) == work.num_removed:
            break
        layer, head = candidates[index]
        if left[layer] > 1:
            left[layer] -= 1
            removed.setdefault(layer, []).append(head)
    return RankingChoice(PruningPlan(removed))


METHODS = (Method("random", "heads drawn at random, as many as asked for", choose_plan=choose_plan),)
