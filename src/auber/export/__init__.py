"""Export a pruned model: as an ONNX graph, at full size for plain transformers, or for the Hub.

To add a target, write a module with a function `export(source, place, progress) -> Exported` and
name it in `TARGETS`. A target that writes a folder uses `verification.write_verified`, which keeps
only what computes the logits of the model. Nothing heavy is imported before a model is exported, so
that `--help` stays quick.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
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
    "int8": "the same with 8-bit weights, which changes some answers",
    "dense": "full size, zeros for removed units, for plain transformers",
    "hub": "a folder to share: model card and code that loads it",
}


WARN_ABOVE = 0.02  # the share of answers that int8 may change without a warning


def export_model(
    run: str | Path,
    to: str,
    *,
    out: str | Path | None = None,
    rows: str | Path | None = None,
    text: str | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Export the model of a finished run or a model folder to the target `to`.

    By default the result is written beside it: `runs/mine` becomes `runs/mine-onnx`. For int8,
    `rows` is a file whose `text` columns are read to compare answers on; by default rows are
    random.
    """
    if to not in TARGETS:
        raise ConfigError(unknown_name("export target", to, TARGETS))
    from auber.export.source import read_source
    from auber.export.verification import require_free

    if to != "int8" and (rows is not None or text is not None):
        raise ConfigError(f"--rows and --text go with --to int8, found --to {to}; leave them out")
    if rows is None and text is not None:
        raise ConfigError("--text names columns of --rows; add --rows FILE")
    place = _beside(Path(run), to) if out is None else Path(out)
    require_free(place)
    source = read_source(run)
    if rows is not None:
        from auber.export.answers import read_rows

        source = replace(source, rows=read_rows(source, Path(rows), text))
    exported: Exported = importlib.import_module(f"auber.export.{to}").export(
        source, place, progress or Progress()
    )
    return exported


def _beside(run: Path, to: str) -> Path:
    """Return the path with the target appended to the run's name."""
    if run.name in ("", ".."):  # `.` and `..` have no name to append to
        return run / ".." / f"{run.resolve().name}-{to}"
    return run.with_name(f"{run.name}-{to}")
