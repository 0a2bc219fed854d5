"""The code that a saved folder carries, so that transformers loads it without this package.

`modeling_auber.py` is copied into the folder of a pruned model, and `config.json` points to it
with `auto_map`. If all layers have the same width, neither is needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from auber.data.task_types import TASK_TYPES
from auber.models.encoders import INTERMEDIATE_SIZES, REMOVED_HEADS

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

__all__ = ["MODELING_FILE", "adopt", "auto_map", "needs_code"]

MODELING_FILE = Path(__file__).with_name("modeling_auber.py")


def needs_code(config: PreTrainedConfig) -> bool:
    """Return whether a model's layers differ, so that transformers cannot build it by itself."""
    return bool(getattr(config, REMOVED_HEADS, None)) or hasattr(config, INTERMEDIATE_SIZES)


def auto_map(config: PreTrainedConfig) -> dict[str, str]:
    """Return the entries that lead the Auto classes of transformers to the modeling file."""
    classes = {each.auto_class: each.model_class(config) for each in TASK_TYPES.values()}
    return {entry: f"{MODELING_FILE.stem}.{cls.__name__}" for entry, cls in classes.items()}


def adopt(model: PreTrainedModel) -> None:
    """Make a live pruned model's own `save_pretrained` write the modeling file too.

    Its class becomes the one of the modeling file that is derived from it and has its name; what
    the model computes does not change.
    """
    from auber.models.remote_code import modeling_auber

    name = type(model).__name__
    model.__class__ = getattr(modeling_auber, name)
    model.config.auto_map = auto_map(model.config)
    places = {place: entry for entry, place in model.config.auto_map.items()}
    type(model).register_for_auto_class(places[f"{MODELING_FILE.stem}.{name}"])
