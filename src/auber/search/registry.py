"""The registry of pruning methods, and the controls.

A new method is one file with `METHODS` in `players` or `rankings`, and one name below.
"""

from __future__ import annotations

from auber.config import PRESETS, Config, make_config
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

# Settings that only the searches by layers read.
_BY_LAYER = (
    "protocol",
    *("agent.", "reward.", "layer."),
    *(
        f"search.{name}"
        for name in ("order", "layers", "prior", "heads", "rewind", "matrix", "norm")
    ),
)

_SEARCHES = (auber, surrogate, greedy, exhaustive)
_RANKINGS = (random, confidence, michel, fisher, exchange, voita)

METHODS: dict[str, Method] = {
    method.name: method
    for methods in (*(module.METHODS for module in (*_SEARCHES, *_RANKINGS)), _CONTROLS)
    for method in methods
}


def default_method(config: Config, given: str | None = None) -> tuple[Method, str | None]:
    """Return the method of a run that names none, and the reason if it is not the preset's.

    Without a target size, the paper's search is meant by a setting of the searches by layers, or by
    an option that only they take (`given`).
    """
    method, size = METHODS[PRESETS[config.preset].method], config.size
    if method.decides_number or size.keep or size.tolerance is not None:
        return method, None
    if given is None:
        usual = make_config(config.preset, settings={"protocol": config.protocol}).flat()
        usual["protocol"] = make_config(config.preset).protocol
        changed = [key for key, value in config.flat().items() if value != usual[key]]
        given = next((key for key in changed if key.startswith(_BY_LAYER)), None)
    if given is None:
        return method, None
    return METHODS["auber"], (
        f"the method is auber, which removes heads layer by layer, because {given} is given (the "
        f"usual one, {method.name}, prunes heads and neurons to a size)"
    )


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
