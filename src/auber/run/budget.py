"""The best plan of a given size: how many heads go in which layer, where each layer's best mask of every size is known.

What a mask gains is counted as if the other layers stayed as they are, and gains of layers add up. That is an approximation, the
only one here: among all ways to share the heads out, the best is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from auber.models.encoders.base import Encoder
from auber.models.plan import PruningPlan
from auber.search.methods import LayerSearch, Mask


def most_to_remove(encoder: Encoder, layers: Iterable[int]) -> int:
    """How many heads these layers can lose: one stays in each."""
    return sum(max(0, len(encoder.present(layer)) - 1) for layer in layers)


def gains(work: LayerSearch, scores: Mapping[Mask, float]) -> dict[Mask, float]:
    """What each mask that was scored is worth above the plan that the search began from, in points."""
    begun = work.objective(work.prior, scores[work.prior])
    return {mask: work.objective(mask, score) - begun for mask, score in scores.items()}


def best_by_size(gains: Mapping[Mask, float]) -> dict[int, tuple[Mask, float]]:
    """Of the masks of every size the one that gains most, and its gain; of equals the first in order of heads."""
    found: dict[int, tuple[Mask, float]] = {}
    for mask in sorted(gains):
        if len(mask) not in found or gains[mask] > found[len(mask)][1]:
            found[len(mask)] = mask, gains[mask]
    return found


def best_plan(
    num_removed: int, layers: Mapping[int, Mapping[int, tuple[Mask, float]]]
) -> tuple[PruningPlan, float]:
    """The plan that removes so many heads and gains most, and its gain.

    `layers` has `best_by_size` of each. Where the sizes known do not add up to the number, it is the nearest they do, of two
    the smaller.
    """
    best: dict[int, tuple[float, dict[int, Mask]]] = {
        0: (0.0, {})
    }  # by heads removed in the layers so far
    for layer, sizes in layers.items():
        longer: dict[int, tuple[float, dict[int, Mask]]] = {}
        for removed, (gain, plan) in best.items():
            for size, (mask, more) in sizes.items():
                total = removed + size
                if total not in longer or gain + more > longer[total][0]:
                    longer[total] = gain + more, {**plan, layer: mask}
        best = longer
    nearest = min(best, key=lambda total: (abs(total - num_removed), total))
    gain, plan = best[nearest]
    return PruningPlan(plan), gain
