"""The table of pruning methods. A new one is a file with its entry, and its name in the line below."""

from __future__ import annotations

from auber.errors import ConfigError, unknown_name
from auber.search import controls
from auber.search.methods import Method
from auber.search.players import auber, exhaustive, greedy
from auber.search.rankings import confidence, michel, random, voita

_MODULES = (auber, greedy, exhaustive, random, confidence, michel, voita, controls)

METHODS: dict[str, Method] = {
    method.name: method for module in _MODULES for method in module.METHODS
}


def get_method(name: str) -> Method:
    """The method of that name."""
    if name not in METHODS:
        raise ConfigError(unknown_name("method", name, METHODS))
    return METHODS[name]
