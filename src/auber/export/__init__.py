"""A pruned model in the forms others take: as an ONNX graph, or at full size for plain transformers.

To add a target: write a module with a function `export(source, place, progress) -> Exported` and name it in `TARGETS`. One
that writes a folder goes through `base.write_checked`, which keeps nothing that computes other logits than the model.
Nothing heavy is imported before a model is exported, so that the command line's help is made from the table at once.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from auber.errors import ConfigError, unknown_name
from auber.system.progress import Progress

if TYPE_CHECKING:
    from auber.export.base import Exported

__all__ = ["TARGETS", "Target", "export_model"]


@dataclass(frozen=True)
class Target:
    """One form a model can be exported to."""

    name: str
    doc: str
    module: str  # where its function `export` is


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("onnx", "a graph with its tokenizer, for onnxruntime", "auber.export.onnx"),
        Target(
            "dense",
            "full size, zeros for removed heads, for plain transformers",
            "auber.export.dense",
        ),
        Target(
            "hub",
            "a folder to share: model card, map of heads, code that loads it",
            "auber.export.hub",
        ),
    )
}


def export_model(
    run: str | Path, to: str, *, out: str | Path | None = None, progress: Progress | None = None
) -> Exported:
    """Write the model of a run's folder or a model folder in the form `to` names.

    Without `out` the result lies beside it: `runs/mine` becomes `runs/mine-onnx`.
    """
    if to not in TARGETS:
        raise ConfigError(unknown_name("export target", to, TARGETS))
    from auber.export.base import require_free
    from auber.export.source import open_source

    place = _beside(Path(run), to) if out is None else Path(out)
    require_free(place)
    exported: Exported = importlib.import_module(TARGETS[to].module).export(
        open_source(run), place, progress or Progress()
    )
    return exported


def _beside(run: Path, to: str) -> Path:
    """The place with the target's name behind the run's, as a path from where the caller's leads."""
    if run.name in ("", ".."):  # `.` and `..` have no name to put the target's behind
        return run / ".." / f"{run.resolve().name}-{to}"
    return run.with_name(f"{run.name}-{to}")
