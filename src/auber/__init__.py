"""Remove the attention heads and neurons that a fine-tuned encoder can do without.

Public names are loaded on first use, so importing `auber` is fast. The errors of its functions
name arguments; those of the modules name options of the command line.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from auber.api import Pruned, evaluate, finetune, prune
    from auber.callback import AuberCallback
    from auber.config import Config, make_config
    from auber.data import load_task, make_task, make_texts
    from auber.errors import AuberError
    from auber.models.checkpoint import load, load_tokenizer, save
    from auber.models.plan import PruningPlan
    from auber.models.surgery import masked, remove

__all__ = [
    "AuberCallback",
    "AuberError",
    "Config",
    "Pruned",
    "PruningPlan",
    "evaluate",
    "finetune",
    "load",
    "load_task",
    "load_tokenizer",
    "make_config",
    "make_task",
    "make_texts",
    "masked",
    "prune",
    "remove",
    "save",
]

_HOMES = {
    "auber.api": ("Pruned", "evaluate", "finetune", "prune"),
    "auber.callback": ("AuberCallback",),
    "auber.models.checkpoint": ("load", "load_tokenizer", "save"),
    "auber.config": ("Config", "make_config"),
    "auber.errors": ("AuberError",),
    "auber.models.plan": ("PruningPlan",),
    "auber.models.surgery": ("masked", "remove"),
    "auber.data": ("load_task", "make_task", "make_texts"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'auber' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    if isinstance(value, type):
        return value
    from auber.errors import naming_arguments

    return naming_arguments(value)


def __dir__() -> list[str]:
    return sorted(__all__)
