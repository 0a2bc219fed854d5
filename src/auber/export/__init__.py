"""Export a pruned model: as an ONNX graph, at full size for plain transformers, or for the Hub.

To add a target, write a module with a function `export(source, place, progress) -> Exported` and
name it in `TARGETS`. A target that writes a folder uses `verification.write_verified`, which keeps
only what computes the logits of the model. Nothing heavy is imported before a model is exported, so
that `--help` stays quick.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from auber.errors import ConfigError, unknown_name
from auber.system.progress import Progress

if TYPE_CHECKING:
    from auber.export.verification import Exported

__all__ = ["TARGETS", "export_model"]


# The forms that a model can be exported to; `auber.export.NAME` implements each.
TARGETS = {
    "onnx": "a graph with its tokenizer, for onnxruntime",
    "dense": "full size, zeros for removed heads, for plain transformers",
    "hub": "a folder to share: model card and code that loads it",
}


def export_model(
    run: str | Path, to: str, *, out: str | Path | None = None, progress: Progress | None = None
) -> Exported:
    """Export the model of a finished run or a model folder to the target `to`.

    By default the result is written beside it: `runs/mine` becomes `runs/mine-onnx`.
    """
    if to not in TARGETS:
        raise ConfigError(unknown_name("export target", to, TARGETS))
    from auber.export.source import read_source
    from auber.export.verification import require_free

    place = _beside(Path(run), to) if out is None else Path(out)
    require_free(place)
    exported: Exported = importlib.import_module(f"auber.export.{to}").export(
        read_source(run), place, progress or Progress()
    )
    return exported


def _beside(run: Path, to: str) -> Path:
    """Return the path with the target appended to the run's name."""
    if run.name in ("", ".."):  # `.` and `..` have no name to append to
        return run / ".." / f"{run.resolve().name}-{to}"
    return run.with_name(f"{run.name}-{to}")
