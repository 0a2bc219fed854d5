"""Greedy search: one-step look-ahead on the rewards that AUBER plays for.

At each step every single further removal is scored and the best is taken, as long as it gains; a removal that leaves the
metric where it is does not, unless a removed head is paid for. Among equals the lowest head goes. One head stays. Where a plan is
given, a step puts one of its heads back or takes another besides. Not in the paper: it is what the agent must beat to be worth
its training.
"""

from __future__ import annotations

from collections.abc import Sequence

from auber.methods.base import LayerChoice, LayerWork, Mask, Method


def choose_layer(work: LayerWork) -> LayerChoice:
    """Change the head that gains most until none gains."""
    most_steps = len(work.heads) - 1
    work.progress.begin(f"layer {work.layer}: searching", most_steps)
    removed = work.given
    given_score = score = work.score(removed)
    path: list[int] = []
    scored, curve = 1, [(1, score)]
    while candidates := _steps(work, removed, path):
        scores = work.score_many(list(candidates.values()))
        for found in scores:
            scored += 1
            if found > curve[-1][1]:
                curve.append((scored, found))
        known = dict(zip(candidates, scores, strict=True))
        best = max(known, key=lambda head: work.worth(candidates[head], known[head]))
        if work.worth(candidates[best], known[best]) <= work.worth(removed, score):
            break
        path.append(best)
        removed, score = candidates[best], known[best]
        work.progress.step(len(path), f"best {score:.4f}")
    work.progress.end()
    return LayerChoice(
        removed=removed,
        rewards_asked=scored,
        rewards_computed=scored,  # no mask comes up twice
        details={
            "given_score": given_score,
            "best": list(removed),
            "best_score": score,
            "path": path,
            "curve": [list(point) for point in curve],
        },
    )


def _steps(work: LayerWork, removed: Mask, path: Sequence[int]) -> dict[int, Mask]:
    """What one more step may come to, by the head it changes: none twice, and one is left."""
    masks = {head: tuple(sorted({*removed} ^ {head})) for head in work.heads if head not in path}
    return {head: mask for head, mask in masks.items() if len(mask) < len(work.heads)}


METHODS = (Method("greedy", "the head that gains most goes, layer by layer, until none gains", choose_layer),)
