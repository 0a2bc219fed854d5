"""The target `int8`: the ONNX graph with 8-bit weights, quantised dynamically by onnxruntime.

The inputs of each matrix product are quantised while the graph runs, with one scale per batch. So
the logits differ from the model's, and those of a row depend slightly on the other rows of its
batch. `checks.py` counts the answers that change.
"""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from typing import Any

from auber.export import GRAPH
from auber.export.onnx import load, require_packages, write_beside, write_graph
from auber.export.source import Source

__all__ = ["load", "quantise", "write"]


def write(source: Source, folder: Path) -> None:
    """Write the files; the packages of `auber[onnx]` are needed."""
    require_packages("--to int8")
    with tempfile.TemporaryDirectory(prefix="auber-int8-") as scratch:
        write_graph(source.model, Path(scratch) / GRAPH, source.inputs)
        quantise(Path(scratch) / GRAPH, folder / GRAPH)
    write_beside(source, folder, is_int8=True)


def quantise(graph: Path, place: Path) -> None:
    """Write a graph again with the weights of products and embeddings as 8-bit integers.

    Each output channel has its own scale. Weights have 7 bits: CPUs without 8-bit dot products
    add products in 16 bits, where those of full range overflow.
    """
    onnx: Any = importlib.import_module("onnx")
    quantization: Any = importlib.import_module("onnxruntime.quantization")
    model = onnx.load(graph)
    # The quantiser transposes some weights and would find their old shapes there.
    del model.graph.value_info[:]
    # It advises on standard error to run an optimiser first, which onnxruntime does on loading.
    onnx.helper.set_model_props(model, {"onnx.quant.pre_process": "onnxruntime.quant"})
    quantization.quantize_dynamic(model, place, per_channel=True, reduce_range=True)
