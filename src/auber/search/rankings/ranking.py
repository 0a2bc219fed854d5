"""The rule all ranking methods share: the heads of the lowest scores go, and one head stays in each layer."""

from __future__ import annotations

import math
from collections.abc import Mapping

from auber.errors import ModelError, PlanError
from auber.models.plan import PruningPlan

HeadScores = Mapping[int, Mapping[int, float]]  # by layer, then by present head


def remove_lowest(scores: HeadScores, num_removed: int) -> PruningPlan:
    """The plan that removes so many heads, lowest score first, passing over the last head of a layer.

    Among equals the lower layer goes first, then the lower head.
    """
    ranked = sorted(
        (score, layer, head) for layer, heads in scores.items() for head, score in heads.items()
    )
    for score, layer, head in ranked:
        if not math.isfinite(score):
            raise ModelError(
                f"layer {layer}, head {head}: its score must be a finite number, found {score}; check the model's weights"
            )
    removable = {layer: max(0, len(heads) - 1) for layer, heads in scores.items()}
    most = sum(removable.values())
    if not 0 <= num_removed <= most:
        raise PlanError(
            f"plan: the number of heads to remove must be from 0 to {most} (one head stays in each layer), "
            f"found {num_removed}"
        )
    removed: dict[int, list[int]] = {layer: [] for layer in scores}
    left = num_removed
    for _, layer, head in ranked:
        if left and len(removed[layer]) < removable[layer]:
            removed[layer].append(head)
            left -= 1
    return PruningPlan(removed)


def scores_to_json(scores: HeadScores) -> dict[str, dict[str, float]]:
    """The scores as a plain JSON object, layer and head numbers as strings."""
    return {
        str(layer): {str(head): score for head, score in heads.items()}
        for layer, heads in scores.items()
    }
