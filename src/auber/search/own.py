"""A user's own player: any object with the method `choose_layer`, used like a `--method`.

    class MyPlayer:
        def choose_layer(self, search: LayerSearch) -> LayerChoice:
            ...

`auber.prune(..., player=MyPlayer())` runs an object, `--player module:Name` and a study's `methods`
name it. The method is called for one layer after the other and should draw random numbers from
`auber.system.seeds.generator(search.config.seed, "my player", search.layer)`, so that a resumed run
repeats them. Its result is checked each time; `check_player` tries a player on made-up layers. A
run is identified by the player's class, not by its attributes: give another player another class.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from auber.config import make_config
from auber.errors import ConfigError, show_name, show_value, suggest
from auber.search.methods import LayerChoice, LayerSearch, Method
from auber.system.progress import Progress

_DETAILS = ("given_score", "best", "best_score", "curve")  # what reports show of a player


class Player(Protocol):
    """What a player must have."""

    def choose_layer(self, search: LayerSearch) -> LayerChoice:
        """Return which of `search.heads` to remove, with the masks that `search` scored."""


def make_method(player: Player) -> Method:
    """Return the method that a player is, named `module:Name` after its class."""
    name = f"{type(player).__module__}:{type(player).__qualname__}"
    if isinstance(player, type):
        raise ConfigError(
            f"player {player.__module__}:{player.__qualname__}: must be an object, found the "
            "class; write player=Name()"
        )
    return _make_method(name, player)


def load_method(name: str) -> Method:
    """Return the method of the player `module:Name`, a class without arguments or an object."""
    module_name, _, attribute = name.partition(":")
    where = f"player {show_name(name)}"
    if not all(part.isidentifier() for part in (*module_name.split("."), attribute)):
        raise ConfigError(f"{where}: must be MODULE:NAME, such as my_players:MyPlayer")
    here = str(Path.cwd())
    is_new = here not in sys.path
    if is_new:  # as `python -m` does
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the module is the user's: anything can go wrong in it
        line = (str(error).splitlines() or [""])[0]
        raise ConfigError(
            f"{where}: module {module_name} cannot be imported ({type(error).__name__}: {line}); "
            "correct the name or the module, or start in its folder"
        ) from error
    finally:
        if is_new:
            sys.path.remove(here)
    if not hasattr(module, attribute):
        hint = suggest(attribute, vars(module))
        raise ConfigError(f"{where}: module {module_name} has no {attribute}.{hint}")
    player = getattr(module, attribute)
    if isinstance(player, type):
        try:
            player = player()
        except TypeError as error:
            raise ConfigError(
                f"{where}: the class must take no arguments ({error}); name an object"
            ) from error
    return _make_method(name, player)


def check_player(player: Player) -> None:
    """Raise `ConfigError` with what is wrong with a player, tried on small made-up layers.

    It plays layers of eight and of fewer heads, without and with a prior, and each of them twice.
    """
    from auber.data.generated import NUM_HEADS, build_model
    from auber.models.encoders import encoder_of
    from auber.models.surgery import remove
    from auber.search.toy import ToyLayer

    method = make_method(player)
    assert method.choose_layer is not None
    config = make_config("default")
    for gone, prior in (((), ()), ((), (1, 4)), ((2, 5), (0,)), (tuple(range(1, NUM_HEADS)), ())):
        model = build_model()
        remove(model, {0: gone} if gone else {})
        encoder = encoder_of(model)
        heads = encoder.present(0)
        toy = ToyLayer(len(heads), bias=-0.002)

        def score(masks: Any, toy: ToyLayer = toy, heads: tuple[int, ...] = heads) -> list[float]:
            return [toy.score(tuple(heads.index(head) for head in mask)) for mask in masks]

        search = LayerSearch(0, encoder, heads, score, config, Progress(), prior)
        first, second = (method.choose_layer(search).removed for _ in range(2))
        if first != second:
            raise ConfigError(
                f"player {method.name}: must repeat its choice with the same seed, found "
                f"{first} and {second}; draw from auber.system.seeds.generator"
            )


def _make_method(name: str, player: Any) -> Method:
    choose = getattr(player, "choose_layer", None)
    if not callable(choose):
        raise ConfigError(
            f"player {name}: must have a method choose_layer(search), which "
            f"{type(player).__name__} lacks; see auber.search.own"
        )
    checked: Callable[[LayerSearch], LayerChoice] = choose

    def choose_layer(search: LayerSearch) -> LayerChoice:
        progress, finished = search.progress, search.progress.finished
        progress.begin(f"layer {search.layer}: searching", 0)
        choice = checked(search)
        if progress.finished == finished:  # it reported no stage of its own
            progress.end()
        problem = _find_problem(search, choice)
        if problem:
            raise ConfigError(f"player {name}: layer {search.layer}: {problem}")
        return choice

    return Method(name, "a player of your own", choose_layer)


def _find_problem(search: LayerSearch, choice: object) -> str | None:
    """Return what is wrong with a choice, None if nothing is."""
    if not isinstance(choice, LayerChoice):
        return f"choose_layer must return a LayerChoice, found {type(choice).__name__}"
    removed: Any = choice.removed
    if not isinstance(removed, tuple) or any(type(head) is not int for head in removed):
        return f"removed must be a tuple of ints, found {show_value(removed)}"
    if any(one >= other for one, other in pairwise(removed)) or not {*removed} <= {*search.heads}:
        return (
            f"removed must be some of the heads {list(search.heads)} in ascending order, found "
            f"{list(removed)}"
        )
    if removed and len(removed) == len(search.heads):
        return f"one of the heads {list(search.heads)} must stay, found all removed"
    asked: Any = choice.rewards_asked
    if type(asked) is not int or asked < 0:
        return f"rewards_asked must be a whole number from 0, found {show_value(asked)}"
    unknown = [key for key in choice.details if key not in _DETAILS]
    if unknown:
        return f"details may have {', '.join(_DETAILS)}, found {show_value(unknown[0])}"
    try:
        json.dumps(dict(choice.details), allow_nan=False)
    except (TypeError, ValueError) as error:
        return f"details must be JSON ({error})"
    return None
