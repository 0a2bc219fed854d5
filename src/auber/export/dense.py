"""The target `dense`: full-size weights with zeros for removed heads, for plain transformers without this package.

The folder holds what transformers itself would have saved. It is no faster and no smaller than the unpruned model: what it
buys is that everything that takes a transformers folder takes it.
"""

from __future__ import annotations

from pathlib import Path

from auber.errors import CheckpointError
from auber.export.base import Exported, write_checked
from auber.export.rows import Compute
from auber.export.source import Source
from auber.export.zeros import put_back
from auber.models import checkpoint
from auber.system.progress import Progress


def export(source: Source, place: Path, progress: Progress) -> Exported:
    """Write the folder."""
    progress.plan(2)
    return write_checked("dense", source, place, _write, _compute, progress)


def _write(source: Source, folder: Path) -> None:
    checkpoint.save(put_back(source.model, source.encoder.removed), source.tokenizer, folder)


def _compute(source: Source, folder: Path) -> Compute:
    """The folder as somebody without this package loads it."""
    import torch
    import transformers

    auto_class = getattr(transformers, source.kind.auto_class)
    model, report = auto_class.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report[problem]:
            raise CheckpointError(
                f"{folder}: transformers finds {problem} in it: {sorted(report[problem])[0]}"
            )
    return lambda batch: model(**batch)
