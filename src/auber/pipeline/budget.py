"""The best plan of a given size: how many heads go in which layer, where each layer's best mask of every size is known.

What a mask gains is counted as if the other layers were whole, and gains of layers add up. That is an approximation, the only
one here: among all ways to share the heads out, the best is found.
"""

from __future__ import annotations

from collections.abc import Mapping

from auber.plan import PruningPlan

Mask = tuple[int, ...]


def best_by_size(scores: Mapping[Mask, float]) -> dict[int, tuple[Mask, float]]:
    """Of the masks of every size the one that scores best, and its score; of equals the first in order of heads."""
    found: dict[int, tuple[Mask, float]] = {}
    for mask in sorted(scores):
        if len(mask) not in found or scores[mask] > found[len(mask)][1]:
            found[len(mask)] = mask, scores[mask]
    return found


def best_plan(num_removed: int, layers: Mapping[int, Mapping[int, tuple[Mask, float]]]) -> tuple[PruningPlan, float]:
    """The plan that removes so many heads and gains most, and its gain over nothing removed.

    `layers` has `best_by_size` of each; none removed is among the sizes. Where the sizes known do not add up to the number, it
    is the nearest they do, of two the smaller.
    """
    best: dict[int, tuple[float, dict[int, Mask]]] = {0: (0.0, {})}  # by heads removed in the layers so far
    for layer, sizes in layers.items():
        unpruned = sizes[0][1]
        longer: dict[int, tuple[float, dict[int, Mask]]] = {}
        for removed, (gain, plan) in best.items():
            for size, (mask, score) in sizes.items():
                total, more = removed + size, gain + score - unpruned
                if total not in longer or more > longer[total][0]:
                    longer[total] = more, {**plan, layer: mask}
        best = longer
    nearest = min(best, key=lambda total: (abs(total - num_removed), total))
    gain, plan = best[nearest]
    return PruningPlan(plan), gain
