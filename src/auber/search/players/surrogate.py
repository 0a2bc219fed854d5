"""Surrogate search: predict every mask's objective from those scored, score the best, and repeat.

The prediction is ridge regression on which units are removed: on single units, on pairs and, with
falling weight, on larger groups. A group of k units has the prior variance r ** k, where r is
`_INTERACTION`, or less if there are many units. With it, the kernel of two masks is a power of the
number of units in which they differ, so groups need not be listed. The search begins with the prior
and random masks. All masks are candidates if there are at most `_POOL`; otherwise those within two
changes of the best known, and random ones.

If the total number of heads is given (`search.heads`), a batch has the best mask of every size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, combinations
from typing import TYPE_CHECKING

from auber.config import Config
from auber.errors import ConfigError
from auber.search.methods import LayerChoice, LayerSearch, Mask, Method, ScoredMasks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Flags = NDArray[np.bool_]

_INTERACTION = 0.4  # docs/regret.md says how it and the settings were chosen
_POOL = 4096  # all masks of twelve units
_PARENTS = 16  # masks whose neighbours are candidates


def predict(known: Flags, values: Array, masks: Flags, penalty: float) -> Array:
    """Return the predicted value of each mask (masks, units), from known masks (known, units)."""
    import numpy as np

    signs, others = 2.0 * known - 1, 2.0 * masks - 1
    num_units = known.shape[1]
    interaction = _INTERACTION * min(1, 12 / num_units)
    base = (1 - interaction) / (1 + interaction)
    kernel = base ** ((num_units - signs @ signs.T) / 2)  # (known, known)
    mean = values.mean()
    weights = np.linalg.solve(kernel + penalty * np.eye(len(known)), values - mean)
    predicted: Array = base ** ((num_units - others @ signs.T) / 2) @ weights + mean  # (masks,)
    return predicted


def choose_layer(search: LayerSearch) -> LayerChoice:
    """Score the prior, random masks and then the best predicted ones; return the best."""
    import numpy as np

    from auber.system import seeds

    config, settings, heads = search.config, search.config.surrogate, np.array(search.heads)
    draw = seeds.generator(config.seed, "surrogate", search.layer)
    rewards = min(settings.rewards, 2 ** len(heads) - 1)
    pay = np.array([search.change_reward(head) for head in search.heads])  # (units,)
    prior = np.isin(heads, search.prior)
    scored = ScoredMasks(search)

    def add(masks: Iterable[Mask], most: int) -> None:
        scored.add(masks, min(most, rewards - len(scored)))
        search.progress.step(len(scored), f"best {scored.scores[scored.best()]:.4f}")

    search.progress.begin(f"layer {search.layer}: searching", rewards)
    add([search.prior], 1)
    add(_name(heads, draw.random((_POOL, len(heads))) < 0.5), settings.start - 1)
    while len(scored) < rewards:
        known = np.array([np.isin(heads, mask) for mask in scored.scores])
        values = config.reward.scale * np.array([*scored.scores.values()])
        parents = sorted(scored.scores, key=scored.rank)[-_PARENTS:]
        pool = _candidates(draw, np.array([np.isin(heads, mask) for mask in parents]))
        predicted = predict(known, values, pool, settings.penalty) + (pool ^ prior) @ pay
        ranked = _name(heads, pool[np.argsort(-predicted, kind="stable")])
        if config.search.heads:
            new = [mask for mask in ranked if mask not in scored.scores]
            add({len(mask): mask for mask in reversed(new)}.values(), len(heads))
        else:
            add(ranked, settings.batch)
    search.progress.end()
    return scored.choose(scored.best(), curve=scored.curve())


def _name(heads: NDArray[np.int_], flags: Flags) -> list[Mask]:
    """Return the masks (masks, units) by the heads they remove, without those that remove all."""
    return [tuple(heads[mask].tolist()) for mask in flags if not mask.all()]


def _candidates(draw: np.random.Generator, best: Flags) -> Flags:
    """Return the masks to choose among, from the best ones: (candidates, units)."""
    import numpy as np

    num_units = best.shape[1]
    if 2**num_units <= _POOL:
        every: Flags = (np.arange(2**num_units)[:, None] >> np.arange(num_units)) % 2 == 1
        return every
    changes = np.eye(num_units, dtype=bool)
    pairs = [changes[one] | changes[other] for one, other in combinations(range(num_units), 2)]
    near = [best ^ change for change in chain(changes, pairs)]
    return np.vstack([*near, draw.random((_POOL, num_units)) < 0.5])


def _check(config: Config, heads: Mapping[int, int]) -> None:
    settings = config.surrogate
    if settings.start > settings.rewards:
        raise ConfigError(
            f"surrogate.rewards must be at least surrogate.start ({settings.start}), found "
            f"{settings.rewards}; raise it"
        )
    for layer, number in heads.items():
        least = min(settings.start + number, 2**number - 1)
        if config.search.heads and settings.rewards < least:
            raise ConfigError(
                f"layer {layer}: surrogate.rewards must be at least {least} to score masks of "
                f"every size, as search.heads requires, found {settings.rewards}; raise it"
            )


METHODS = (
    Method(
        "surrogate",
        "predicts the scores of masks from those known and tries the best, layer by layer",
        choose_layer,
        check=_check,
    ),
)
