"""Folders of transformers 4 that record `pruned_heads`, written anew as this package saves them.

transformers 4 could prune heads and reload what it had pruned; transformers 5 cannot. Its folders hold weights that are
sliced already and, in `config.json`, the heads that are gone, counted as here. `checkpoint.load` reads them as they are;
importing one makes it a folder that loads anywhere.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from auber.errors import CheckpointError
from auber.models import checkpoint
from auber.models.encoders import REMOVED_HEADS, encoder_of
from auber.models.plan import PruningPlan

PRUNED_HEADS = "pruned_heads"  # the key in a config.json of transformers 4
_TOKENIZER_FILES = (
    "tokenizer",
    "vocab",
    "merges",
    "spm",
    "spiece",
    "sentencepiece",
)  # how their names begin


@dataclass(frozen=True)
class Imported:
    """What an import left."""

    place: Path
    architecture: str
    plan: PruningPlan
    num_heads: int  # of all layers together, before any was removed
    has_tokenizer: bool


def import_model(folder: str | Path, out: str | Path) -> Imported:
    """Write the pruned model of a transformers 4 folder, and its tokenizer if it has one, as `auber.save` does."""
    folder, place = Path(folder), Path(out)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise CheckpointError(f"{place}: must be a new or an empty folder; choose another --out")
    _require_record(folder)
    model = checkpoint.load(folder)
    has_tokenizer = any(path.name.startswith(_TOKENIZER_FILES) for path in folder.iterdir())
    checkpoint.save(model, checkpoint.load_tokenizer(folder) if has_tokenizer else None, place)
    encoder = encoder_of(model)
    total = encoder.num_layers * encoder.num_heads
    return Imported(place, type(model).__name__, encoder.removed, total, has_tokenizer)


def _require_record(folder: Path) -> None:
    """Raise `CheckpointError` unless the folder records heads as transformers 4 does."""
    try:
        data = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return  # `checkpoint.load` says what is wrong with it
    if not isinstance(data, dict) or data.get(PRUNED_HEADS):
        return
    if data.get(REMOVED_HEADS):
        raise CheckpointError(f"{folder}: is saved by auber already; load it as it is")
    raise CheckpointError(
        f"{folder}: its config.json must record {PRUNED_HEADS}, as transformers 4 does, found none; "
        "a model with all its heads needs no import"
    )
