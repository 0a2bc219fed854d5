"""The target `onnx`: a folder with the graph, the tokenizer, the config with the labels, and how to run it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from auber.export.base import Exported, write_checked
from auber.export.graph import graph_call, open_graph, require_packages, write_graph
from auber.export.howto import write_how_to
from auber.export.rows import Compute
from auber.export.source import Source
from auber.system.progress import Progress

GRAPH = "model.onnx"


def export(source: Source, place: Path, progress: Progress) -> Exported:
    """Write the folder, if the packages of `auber[onnx]` are there."""
    require_packages("--to onnx")
    progress.plan(2)
    exported = write_checked("onnx", source, place, _write, _compute, progress)
    return replace(exported, graph=place / GRAPH)


def _write(source: Source, folder: Path) -> None:
    write_graph(source.model, folder / GRAPH, source.inputs)
    source.tokenizer.save_pretrained(folder)
    source.model.config.save_pretrained(folder)
    (folder / "README.md").write_text(write_how_to(source, GRAPH), encoding="utf-8")


def _compute(source: Source, folder: Path) -> Compute:
    session = open_graph(folder / GRAPH, torch.get_num_threads())
    return lambda batch: graph_call(session, batch)()
