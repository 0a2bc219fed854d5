"""Exhaustive search: score every mask of a layer and take the best, the optimum of any search.

Of masks with the same objective, the one with the fewest changes is taken, then the first in the
order of `all_masks`. The layer's record keeps all scores, unrounded and in that order, and the
state of the layer under every setting. Any other search can be replayed on them without a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from auber.config import Config
from auber.errors import ConfigError
from auber.search.methods import LayerChoice, LayerSearch, Mask, Method, ScoredMasks

if TYPE_CHECKING:
    from auber.models.encoders.base import Encoder

MOST_HEADS = 16
_MASKS_PER_CALL = 256


def all_masks(heads: Sequence[int]) -> list[Mask]:
    """Return every mask that leaves a head: by size, then in the order of the heads."""
    return [mask for size in range(len(heads)) for mask in combinations(heads, size)]


def choose_layer(search: LayerSearch) -> LayerChoice:
    """Score all masks that leave a head, and return the best."""
    masks, scored = all_masks(search.heads), ScoredMasks(search)
    search.progress.begin(f"layer {search.layer}: searching", len(masks))
    for start in range(0, len(masks), _MASKS_PER_CALL):
        scored.add(masks[start : start + _MASKS_PER_CALL])
        search.progress.step(len(scored), f"best {max(scored.scores.values()):.4f}")
    search.progress.end()
    return scored.choose(
        scored.best(),
        heads=list(search.heads),
        states=layer_states(search.encoder, search.layer, len(search.heads)),
        scores=list(scored.scores.values()),
    )


def layer_states(encoder: Encoder, layer: int, num_heads: int) -> dict[str, dict[str, list[float]]]:
    """Return a layer's initial state by `search.matrix` and `search.norm`."""
    from auber.search.state import NORMS, projection_state  # torch: methods are listed without it

    parts = encoder.parts(layer)
    return {
        matrix: {
            norm: projection_state(getattr(parts, matrix).weight, num_heads, norm).tolist()
            for norm in NORMS
        }
        for matrix in ("value", "query", "key")
    }


def _check(config: Config, heads: Mapping[int, int]) -> None:
    for layer, number in heads.items():
        if number > MOST_HEADS:
            raise ConfigError(
                f"layer {layer}: method 'exhaustive' scores every mask and takes layers of at most "
                f"{MOST_HEADS} heads, found {number} heads; use greedy or auber"
            )


METHODS = (
    Method(
        "exhaustive",
        "scores every mask of a layer and takes the best",
        choose_layer,
        check=_check,
    ),
)
