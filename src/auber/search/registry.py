"""The registry of pruning methods, and the controls.

A new method is one file with `METHODS` in `players` or `rankings`, and one name below.
"""

from __future__ import annotations

from auber.errors import ConfigError, unknown_name
from auber.models.plan import PruningPlan
from auber.search.methods import (
    LayerChoice,
    LayerSearch,
    Method,
    RankingChoice,
    RankingInputs,
)
from auber.search.own import load_method
from auber.search.players import auber, exhaustive, greedy, surrogate
from auber.search.rankings import confidence, exchange, fisher, michel, random, voita


def _remove_nothing(inputs: RankingInputs) -> RankingChoice:
    return RankingChoice(PruningPlan())


_CONTROLS = (
    Method(
        "original",
        "the fine-tuned model, unchanged",
        choose_plan=_remove_nothing,
        removes_heads=False,
        tunes=False,
    ),
    Method(
        "original+tuning",
        "removes no head; has all the tuning of a pruned model",
        choose_plan=_remove_nothing,
        removes_heads=False,
    ),
)

_SEARCHES = (auber, surrogate, greedy, exhaustive)
_RANKINGS = (random, confidence, michel, fisher, exchange, voita)

METHODS: dict[str, Method] = {
    method.name: method
    for methods in (*(module.METHODS for module in (*_SEARCHES, *_RANKINGS)), _CONTROLS)
    for method in methods
}


def get_method(name: str) -> Method:
    """Return the method with this name; `module:Name` is a user's own player."""
    if ":" in name:
        return load_method(name)
    if name not in METHODS:
        raise ConfigError(unknown_name("method", name, METHODS))
    return METHODS[name]


def outline_method(name: str) -> Method:
    """Return the method with this name; a user's own player is imported when it plays."""
    if ":" not in name:
        return METHODS[name]

    def choose_layer(search: LayerSearch) -> LayerChoice:
        choose = load_method(name).choose_layer
        assert choose is not None
        return choose(search)

    return Method(name, "a player of your own", choose_layer)
