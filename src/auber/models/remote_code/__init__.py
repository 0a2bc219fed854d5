"""What a saved folder carries so that transformers loads it where this package is not installed.

`modeling_auber.py` is copied into the folder of every pruned model; `auto_map` is what `config.json` says about it. A
folder of an unpruned model needs neither.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from auber.data.task_types import TASK_TYPES

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

__all__ = ["MODELING_FILE", "adopt", "auto_map"]

MODELING_FILE = Path(__file__).with_name("modeling_auber.py")


def auto_map(config: PreTrainedConfig) -> dict[str, str]:
    """The entries that lead transformers' Auto classes to the file, which names its classes as transformers does."""
    from transformers import MODEL_MAPPING

    classes = {kind.auto_class: kind.model_class(config) for kind in TASK_TYPES.values()}
    entries = {"AutoModel": MODEL_MAPPING[type(config)], **classes}
    return {entry: f"{MODELING_FILE.stem}.{cls.__name__}" for entry, cls in entries.items()}


def adopt(model: PreTrainedModel) -> None:
    """Turn a live pruned model into one of the file's, so that its own `save_pretrained` takes the file along.

    Nothing of what it computes changes: the file's class is derived from the model's own and has its name.
    """
    from auber.models.remote_code import modeling_auber

    name = type(model).__name__
    model.__class__ = getattr(modeling_auber, name)
    model.config.auto_map = auto_map(model.config)
    (entry,) = (
        entry
        for entry, place in model.config.auto_map.items()
        if place == f"{MODELING_FILE.stem}.{name}"
    )
    type(model).register_for_auto_class(entry)
