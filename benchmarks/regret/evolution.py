"""Evolution on the masks of a layer: a comparison for replays, written as a player.

Each child takes every unit from one of two parents and then changes a unit with probability 1 / n.
The parents are drawn from the best masks known.
"""

from __future__ import annotations

import numpy as np

from auber.search.methods import LayerChoice, LayerSearch, ScoredMasks
from auber.system import seeds

_PARENTS = 10
_PATIENCE = 1000  # children in a row that are known already


def choose_layer(search: LayerSearch) -> LayerChoice:
    """Score children of the best masks, as many as the surrogate scores, and return the best."""
    draw = seeds.generator(search.config.seed, "evolution", search.layer)
    heads, scored = np.array(search.heads), ScoredMasks(search)
    scored.add([()])
    rewards = min(search.config.surrogate.rewards, 2 ** len(heads) - 1)
    repeats = 0
    while len(scored) < rewards and repeats < _PATIENCE:
        parents = sorted(scored.scores, key=lambda mask: -scored.objective(mask))[:_PARENTS]
        if len(parents) < _PARENTS:
            removed = draw.random(len(heads)) < 0.5
        else:
            pair = draw.choice(_PARENTS, 2, replace=False)
            one, other = (np.isin(heads, parents[place]) for place in pair)
            removed = np.where(draw.random(len(heads)) < 0.5, one, other)
            removed ^= draw.random(len(heads)) < 1 / len(heads)
        mask = tuple(heads[removed].tolist())
        repeats = 0 if mask not in scored.scores and not removed.all() else repeats + 1
        if repeats == 0:
            scored.add([mask])
    return scored.choose(scored.best(), curve=scored.curve())
