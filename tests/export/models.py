"""A pruned classifier with a tokenizer, saved as a run leaves it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import auber
from auber.surgery import remove_heads
from tests.models import tiny_model, tiny_tokenizer

UNEVEN = {0: [0, 3], 1: [1], 2: [0, 1, 2]}  # of 3 layers of 4 heads


def save_pruned(folder: Path, plan: dict[int, list[int]] | None = None, **changes: Any) -> Any:
    """A tiny BERT without some heads, saved with its tokenizer; the live model comes back."""
    names = {0: "bad", 1: "good"}
    options = {"pad_token_id": 0, "id2label": names, "label2id": {name: index for index, name in names.items()}}
    model = tiny_model("bert", **{**options, **changes})
    remove_heads(model, UNEVEN if plan is None else plan, allow_empty_layers=True)
    auber.save(model, tiny_tokenizer(), folder)
    return model
