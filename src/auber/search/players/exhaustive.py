"""Exhaustive search: every mask of a layer is scored and the best is taken; what any search can reach at most.

The best is the one of the highest metric together with what the changed heads pay. Of masks that are worth the same, the one
that removes fewest heads (departs least from a plan that is given) is taken, then the first in the order of the numbers. All scores stay in the layer's record, unrounded
and in the order of `all_masks`, beside what an agent would have seen of the layer under every setting: with them any other
search can be played afterwards without a model (`benchmarks.regret`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from auber.config import Config
from auber.errors import ConfigError
from auber.search.methods import LayerChoice, LayerWork, Mask, Method

MOST_HEADS = 16
_MASKS_PER_CALL = 256


def all_masks(heads: Sequence[int]) -> list[Mask]:
    """Every set of heads that leaves one: by size, then in the order of the heads; the empty one is first."""
    return [mask for size in range(len(heads)) for mask in combinations(heads, size)]


def _check(config: Config, heads: Mapping[int, int]) -> None:
    """Raise `ConfigError` where a layer has more masks than anyone would wait for."""
    for layer, number in heads.items():
        if number > MOST_HEADS:
            raise ConfigError(
                f"layer {layer}: method 'exhaustive' scores every mask and takes layers of at most {MOST_HEADS} heads, "
                f"found {number} heads; use greedy or auber"
            )


def choose_layer(work: LayerWork) -> LayerChoice:
    """Score all masks that leave a head, and remove the heads of the best."""
    masks = all_masks(work.heads)
    scores: list[float] = []
    work.progress.begin(f"layer {work.layer}: searching", len(masks))
    for start in range(0, len(masks), _MASKS_PER_CALL):
        scores += work.score_many(masks[start : start + _MASKS_PER_CALL])
        work.progress.step(len(scores), f"best {max(scores):.4f}")
    work.progress.end()
    # Of equals the one that departs least from what is given, then the first: they come by size, then by number.
    worth = [
        (work.worth(mask, score), -len({*work.given} ^ {*mask}))
        for mask, score in zip(masks, scores, strict=True)
    ]
    best = max(range(len(masks)), key=worth.__getitem__)
    return LayerChoice(
        removed=masks[best],
        rewards_asked=len(masks),
        rewards_computed=len(masks),
        details={
            "given_score": scores[masks.index(work.given)],
            "best": list(masks[best]),
            "best_score": scores[best],
            "heads": list(work.heads),
            "states": _states(work),
            "scores": scores,
        },
    )


def _states(work: LayerWork) -> dict[str, dict[str, list[float]]]:
    """The layer's initial state by `search.matrix` and `search.norm`: six short lists save scoring all masks six times."""
    from auber.search.state import (
        projection_state,
    )  # torch: the table of methods is read without it

    parts = work.encoder.parts(work.layer)
    states: dict[str, dict[str, list[float]]] = {}
    for matrix in ("value", "query", "key"):
        weight = getattr(parts, matrix).weight
        states[matrix] = {
            norm: projection_state(weight, len(work.heads), norm).tolist() for norm in ("l1", "l2")
        }
    return states


METHODS = (
    Method(
        "exhaustive",
        "every mask of a layer is scored and the best taken",
        choose_layer,
        check=_check,
    ),
)
