"""Greedy search: one-step look-ahead on the same rewards as AUBER's.

At each step every single further removal is scored and the best is made if it gains; of equal ones,
the lowest head is removed. One head always stays. With a prior, a step removes a head or puts one
of the prior's back. The paper has no such search; an agent has to beat it to be worth training.

If the total number of heads is given (`search.heads`), masks of every size are scored as well, so
that the removals can be distributed among the layers; the search's own choice is the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from auber.search.methods import LayerChoice, LayerSearch, Mask, Method, ScoredMasks


def choose_layer(search: LayerSearch) -> LayerChoice:
    """Change the head that gains most until no change gains."""
    search.progress.begin(f"layer {search.layer}: searching", len(search.heads) - 1)
    scored, removed = ScoredMasks(search), search.prior
    scored.add([removed])
    path: list[int] = []
    while candidates := _next_masks(search, removed, path):
        scored.add(candidates.values())
        best = max(candidates, key=lambda head: scored.objective(candidates[head]))
        if scored.objective(candidates[best]) <= scored.objective(removed):
            break
        path.append(best)
        removed = candidates[best]
        search.progress.step(len(path), f"best {scored.scores[removed]:.4f}")
    if search.config.search.heads:
        _score_every_size(search, scored, removed)
    search.progress.end()
    return scored.choose(removed, path=path, curve=scored.curve())


def _score_every_size(search: LayerSearch, scored: ScoredMasks, removed: Mask) -> None:
    """Continue by the best removal down to one head and, with a prior, by the best return to all.

    A layer may have to lose more or fewer heads than gains, and only scored masks can be chosen. A
    step changes one head and scores all candidates, so all sizes between the two ends are scored.
    """
    for end, returns in ((len(search.heads) - 1, False), (0, True)):
        mask = removed
        while all(len(known) != end for known in scored.scores):
            candidates = [_change(mask, head) for head in search.heads if (head in mask) == returns]
            scored.add(candidates)
            mask = max(candidates, key=scored.objective)


def _next_masks(search: LayerSearch, removed: Mask, path: Sequence[int]) -> dict[int, Mask]:
    """Return the mask after each legal change: no head is changed twice, and one stays."""
    masks = {head: _change(removed, head) for head in search.heads if head not in path}
    return {head: mask for head, mask in masks.items() if len(mask) < len(search.heads)}


def _change(mask: Mask, head: int) -> Mask:
    return tuple(sorted({*mask} ^ {head}))


METHODS = (
    Method(
        "greedy", "removes the head that gains most until none gains, layer by layer", choose_layer
    ),
)
