"""Greedy search: one-step look-ahead on the rewards that AUBER plays for.

At each step every single further removal is scored and the best is taken, as long as it gains; a removal that leaves the
metric where it is does not, unless a removed head is paid for. Among equals the lowest head goes. One head stays. Where a plan is
given, a step puts one of its heads back or takes another besides. Where the number of heads is given, masks of every size are
scored besides, so that the layers can share it out; what it would choose by itself is the same. Not in the paper: it is what the
agent must beat to be worth its training.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from auber.search.methods import LayerChoice, LayerWork, Mask, Method


def choose_layer(work: LayerWork) -> LayerChoice:
    """Change the head that gains most until none gains."""
    work.progress.begin(f"layer {work.layer}: searching", len(work.heads) - 1)
    scores = _Scores(work)
    removed = work.given
    scores.look_at([removed])
    path: list[int] = []
    while candidates := _steps(work, removed, path):
        scores.look_at(candidates.values())
        best = max(candidates, key=lambda head: scores.worth(candidates[head]))
        if scores.worth(candidates[best]) <= scores.worth(removed):
            break
        path.append(best)
        removed = candidates[best]
        work.progress.step(len(path), f"best {scores.known[removed]:.4f}")
    if work.config.search.heads:
        _look_at_every_size(work, scores, removed)
    work.progress.end()
    return LayerChoice(
        removed=removed,
        rewards_asked=len(scores.known),
        rewards_computed=len(scores.known),  # no mask is asked for twice
        details={
            "given_score": scores.known[work.given],
            "best": list(removed),
            "best_score": scores.known[removed],
            "path": path,
            "curve": [list(point) for point in scores.curve],
        },
    )


class _Scores:
    """The masks scored so far, and the best score after how many of them."""

    def __init__(self, work: LayerWork) -> None:
        self.known: dict[Mask, float] = {}
        self.curve: list[tuple[int, float]] = []
        self._work = work

    def look_at(self, masks: Iterable[Mask]) -> None:
        """Score those that are not known."""
        new = [mask for mask in masks if mask not in self.known]
        for mask, score in zip(new, self._work.score_many(new) if new else [], strict=True):
            self.known[mask] = score
            if not self.curve or score > self.curve[-1][1]:
                self.curve.append((len(self.known), score))

    def worth(self, mask: Mask) -> float:
        """What a mask that is known is worth."""
        return self._work.worth(mask, self.known[mask])


def _look_at_every_size(work: LayerWork, scores: _Scores, removed: Mask) -> None:
    """Walk on from where nothing gains, by the best removal down to one head and, with a prior, by the best return to all.

    Where the number of heads is given (`search.heads`) a layer may have to lose more than gains, or fewer, and only masks that
    were scored can be chosen. A walk changes one head at a time and looks at all that could be the next: once the smallest and
    the largest size are known, so are those between.
    """
    for end, returns in ((len(work.heads) - 1, False), (0, True)):
        mask = removed
        while all(len(known) != end for known in scores.known):
            further = [
                tuple(sorted({*mask} ^ {head})) for head in work.heads if (head in mask) == returns
            ]
            scores.look_at(further)
            mask = max(further, key=scores.worth)


def _steps(work: LayerWork, removed: Mask, path: Sequence[int]) -> dict[int, Mask]:
    """What one more step may come to, by the head it changes: none twice, and one is left."""
    masks = {head: tuple(sorted({*removed} ^ {head})) for head in work.heads if head not in path}
    return {head: mask for head, mask in masks.items() if len(mask) < len(work.heads)}


METHODS = (
    Method(
        "greedy", "the head that gains most goes, layer by layer, until none gains", choose_layer
    ),
)
