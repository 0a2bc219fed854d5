"""Import folders of transformers 4 that record `pruned_heads`.

transformers 4 could prune heads and load what it had pruned; transformers 5 cannot. Such a folder
holds sliced weights and, in `config.json`, the removed heads, counted as in this package.
`checkpoint.load` reads it unchanged; importing it writes a folder that loads anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from auber.errors import CheckpointError
from auber.models import checkpoint
from auber.models.encoders import REMOVED_HEADS, encoder_of
from auber.models.plan import PruningPlan
from auber.models.source import LEGACY_REMOVED_HEADS, read_config_json

# The first letters of the names of a tokenizer's files.
_TOKENIZER_FILES = ("tokenizer", "vocab", "merges", "spm", "spiece", "sentencepiece")


@dataclass(frozen=True)
class Imported:
    """An imported model."""

    place: Path
    architecture: str
    plan: PruningPlan
    num_heads: int  # of all layers together, before any was removed
    has_tokenizer: bool


def import_model(folder: str | Path, out: str | Path) -> Imported:
    """Save the pruned model and the tokenizer of a transformers 4 folder as `auber.save` does."""
    folder, place = Path(folder), Path(out)
    checkpoint.require_free(place)
    data = read_config_json(folder)
    if not data.get(LEGACY_REMOVED_HEADS):
        if data.get(REMOVED_HEADS):
            raise CheckpointError(
                f"{folder}: was saved by auber and needs no import; load it as it is"
            )
        raise CheckpointError(
            f"{folder}: its config.json must record {LEGACY_REMOVED_HEADS}, as transformers 4 "
            "does, found none; a model with all its heads needs no import"
        )
    model = checkpoint.load(folder)
    has_tokenizer = any(path.name.startswith(_TOKENIZER_FILES) for path in folder.iterdir())
    checkpoint.save(model, checkpoint.load_tokenizer(folder) if has_tokenizer else None, place)
    encoder = encoder_of(model)
    total = encoder.num_layers * encoder.num_heads
    return Imported(place, type(model).__name__, encoder.removed, total, has_tokenizer)
