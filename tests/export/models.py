"""A pruned classifier with a tokenizer, saved as a run leaves it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import auber
from auber.models.surgery import remove_heads
from tests.kinds import TAGS
from tests.tiny_models import tiny_model, tiny_tokenizer

UNEVEN = {0: [0, 3], 1: [1], 2: [0, 1, 2]}  # of 3 layers of 4 heads
LABELS = {"sequence": ("bad", "good"), "tokens": TAGS, "spans": ("start", "end")}


def save_pruned(
    folder: Path,
    plan: dict[int, list[int]] | None = None,
    *,
    model_type: str = "bert",
    kind: str = "sequence",
    **changes: Any,
) -> Any:
    """A tiny model without some heads, saved with its tokenizer; the live model comes back."""
    names = dict(enumerate(LABELS[kind]))
    options = {
        "pad_token_id": 0,
        "id2label": names,
        "label2id": {name: index for index, name in names.items()},
    }
    options |= {"num_labels": len(names)}
    model = tiny_model(model_type, kind=kind, **{**options, **changes})
    remove_heads(model, UNEVEN if plan is None else plan, allow_empty_layers=True)
    auber.save(model, tiny_tokenizer(), folder)
    return model
