"""Export a pruned model: as an ONNX graph, at full size for plain transformers, or for the Hub.

To add a target, name it in `TARGETS` and write a module with two functions: `write(source, folder)`
writes the files, and `load(source, folder)` returns a function that takes a batch by name, as a
model does, and returns an output like the model's. An export is kept only if a check of that
function passes. Nothing heavy is imported before a model is exported, so that `--help` stays quick.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from auber.errors import ConfigError, unknown_name
from auber.system.progress import Progress

if TYPE_CHECKING:
    from auber.export.checks import AnswerCheck, LogitCheck
    from auber.export.source import Source

__all__ = ["TARGETS", "Exported", "export_model"]


# The forms that a model can be exported to; `auber.export.NAME` implements each.
TARGETS = {
    "onnx": "a graph with its tokenizer, for onnxruntime",
    "int8": "the same with 8-bit weights, which changes some answers",
    "dense": "full size, zeros for removed units, for plain transformers",
    "hub": "a folder to share: model card and code that loads it",
}

GRAPH = "model.onnx"  # a file of the targets onnx and int8
WARN_ABOVE = 0.02  # the share of answers that int8 may change without a warning


@dataclass(frozen=True)
class Exported:
    """The result of an export."""

    to: str
    place: Path
    source: Source
    files: dict[str, int]  # name: bytes
    check: LogitCheck | AnswerCheck

    @property
    def graph(self) -> Path | None:
        """The ONNX graph, if there is one."""
        return self.place / GRAPH if GRAPH in self.files else None


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
    if to != "int8" and (rows is not None or text is not None):
        raise ConfigError(f"--rows and --text go with --to int8, found --to {to}; leave them out")
    if rows is None and text is not None:
        raise ConfigError("--text names columns of --rows; add --rows FILE")
    from auber.export.checks import check_answers, check_logits, read_rows
    from auber.export.source import read_source
    from auber.models.checkpoint import replacing, require_free

    place = _beside(Path(run), to) if out is None else Path(out)
    require_free(place)
    source, progress = read_source(run), progress or Progress()
    own_rows = None if rows is None else read_rows(source, Path(rows), text)
    target = importlib.import_module(f"auber.export.{to}")
    progress.plan([1.0, 1.0])
    with replacing(place) as folder:
        progress.begin(f"writing {to}", 0)
        target.write(source, folder)
        progress.end()
        progress.begin("checking", 0)
        exported = target.load(source, folder)
        check: LogitCheck | AnswerCheck
        if to == "int8":
            check = check_answers(source, exported, own_rows)
        else:
            check = check_logits(source, exported)
        progress.end()
        files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    return Exported(to, place, source, files, check)


def _beside(run: Path, to: str) -> Path:
    """Return the path with the target appended to the run's name."""
    if run.name in ("", ".."):  # `.` and `..` have no name to append to
        return run / ".." / f"{run.resolve().name}-{to}"
    return run.with_name(f"{run.name}-{to}")
