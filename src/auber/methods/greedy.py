"""Greedy search: one-step look-ahead on the rewards that AUBER plays for.

At each step every single further removal is scored and the best is taken, as long as it gains; a removal that leaves the
metric where it is does not, unless a removed head is paid for. Among equals the lowest head goes. One head stays. Not in the
paper: it is what the agent must beat to be worth its training.
"""

from __future__ import annotations

from auber.methods.base import LayerChoice, LayerWork, Method

Mask = tuple[int, ...]


def choose_layer(work: LayerWork) -> LayerChoice:
    """Remove the head that gains most until none gains."""
    most_steps = len(work.heads) - 1
    work.progress.begin(f"layer {work.layer}: searching", most_steps)
    removed: Mask = ()
    unpruned_score = score = work.score(removed)
    path: list[int] = []
    scored, curve = 1, [(1, score)]
    while len(removed) < most_steps:
        candidates = [tuple(sorted((*removed, head))) for head in work.heads if head not in removed]
        scores = work.score_many(candidates)
        best = max(range(len(candidates)), key=scores.__getitem__)
        for found in scores:
            scored += 1
            if found > curve[-1][1]:
                curve.append((scored, found))
        if work.worth(candidates[best], scores[best]) <= work.worth(removed, score):
            break
        path += set(candidates[best]).difference(removed)
        removed, score = candidates[best], scores[best]
        work.progress.step(len(removed), f"best {score:.4f}")
    work.progress.end()
    return LayerChoice(
        removed=removed,
        rewards_asked=scored,
        rewards_computed=scored,  # no mask comes up twice
        details={
            "unpruned_score": unpruned_score,
            "best": list(removed),
            "best_score": score,
            "path": path,
            "curve": [list(point) for point in curve],
        },
    )


METHODS = (Method("greedy", "the head that gains most goes, layer by layer, until none gains", choose_layer),)
