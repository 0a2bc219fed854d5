"""The target `onnx`: a graph written by torch's exporter, with its tokenizer, for onnxruntime.

The graph takes any batch size and any length up to the model's positions. It returns in float32
what the model returns: `logits`, `start_logits` and `end_logits`, or for a sentence encoder the
pooled `sentence_embedding`. onnx and onnxruntime are only imported when they are needed, and the
telemetry of onnxruntime is switched off.
"""

from __future__ import annotations

import importlib
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from auber.errors import CheckpointError, ConfigError
from auber.export import GRAPH
from auber.export.dense import restore_units
from auber.export.pages import write_graph_page
from auber.export.source import Source, in_float32
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.random_rows import random_rows
from auber.models.source import one_line
from auber.training.outputs import VECTORS, outputs_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# The outputs of a graph by task type; the model's own output has the same names, but no vectors.
OUTPUT_NAMES = {
    "sequence": ("logits",),
    "tokens": ("logits",),
    "spans": ("start_logits", "end_logits"),
    "embeddings": (VECTORS,),
}
_PACKAGES = ("onnx", "onnxruntime", "onnxscript")
_AXES = {0: "batch", 1: "length"}
_TRACED = (2, 8)  # rows and length of the example batch; the graph keeps neither


def write(source: Source, folder: Path) -> None:
    """Write the files; the packages of `auber[onnx]` are needed."""
    require_packages("--to onnx")
    write_graph(source.model, folder / GRAPH, source.inputs)
    write_beside(source, folder, is_int8=False)


def write_beside(source: Source, folder: Path, *, is_int8: bool) -> None:
    """Write what a graph needs: tokenizer, config and a page on how to run it."""
    source.tokenizer.save_pretrained(folder)
    source.model.config.save_pretrained(folder)
    page = write_graph_page(source, GRAPH, is_int8=is_int8)
    (folder / "README.md").write_text(page, encoding="utf-8")


def load(_source: Source, folder: Path) -> Graph:
    """Load the graph of a folder."""
    return Graph(folder / GRAPH, torch.get_num_threads())


def missing_packages() -> list[str]:
    """Return the packages that would have to be installed."""
    return [name for name in _PACKAGES if find_spec(name) is None]


def require_packages(option: str) -> None:
    """Raise `ConfigError` unless graphs can be written and run, as `option` requests."""
    if missing := missing_packages():
        raise ConfigError(
            f"{option} needs {', '.join(missing)}, not installed here; pip install 'auber[onnx]'"
        )


def write_graph(model: PreTrainedModel, path: Path, inputs: Sequence[str]) -> None:
    """Write a classifier with these inputs as one file; above 2 GB, the weights go into a second.

    A layer without heads or neurons gets one of zeros: onnxruntime cannot reshape an empty tensor.
    """
    encoder = encoder_of(model)
    layers = range(encoder.num_layers)
    empty = PruningPlan(
        {layer: [0] for layer in layers if not encoder.present(layer)},
        {layer: [0] for layer in layers if not encoder.parts(layer).contract.in_features},
    )
    model = restore_units(model, empty) if empty else model
    rows, length = _TRACED
    outputs = OUTPUT_NAMES[encoder.task_type.name]
    batch = random_rows(encoder, inputs, rows=rows, length=min(length, encoder.num_positions))
    with _quiet():
        try:
            program = torch.onnx.export(
                _GraphModule(model, outputs).eval(),
                tuple(batch[name] for name in inputs),
                dynamo=True,
                dynamic_shapes=tuple(_AXES for _ in inputs),
                input_names=list(inputs),
                output_names=list(outputs),
                verbose=False,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            reason = one_line(error.__cause__ or error)
            raise CheckpointError(
                f"{type(model).__name__}: torch cannot write it as an ONNX graph ({reason}); "
                "try the versions constraints.txt names"
            ) from error
        assert program is not None, "the exporter returns the program if it is given no file"
        for node in program.model.graph:
            node.metadata_props.clear()  # stack traces with paths of this machine
        program.save(path)


class Graph(nn.Module):
    """A graph in onnxruntime on the CPU, called like the model it was written from."""

    device = torch.device("cpu")

    def __init__(self, path: Path, threads: int) -> None:
        super().__init__()
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read when the package is imported
        onnxruntime: Any = importlib.import_module("onnxruntime")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3  # errors only
        self.session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )

    def forward(self, **batch: Tensor) -> SimpleNamespace:
        """Return an output like the model's; inputs that the graph does not have are ignored."""
        names = [each.name for each in self.session.get_outputs()]
        arrays = {each.name: batch[each.name].numpy() for each in self.session.get_inputs()}
        found = map(torch.from_numpy, self.session.run(names, arrays))
        return SimpleNamespace(**dict(zip(names, found, strict=True)))


class _GraphModule(nn.Module):
    """The classifier in float32, with its inputs in order and only these outputs."""

    def __init__(self, model: PreTrainedModel, outputs: Sequence[str]) -> None:
        super().__init__()
        self.model, self.outputs = in_float32(model), outputs

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        output = self.model(input_ids=input_ids, attention_mask=attention_mask, **types)
        if self.outputs == (VECTORS,):
            reader = outputs_of("embeddings", self.model)
            return (reader.pack(reader.logits(output), attention_mask),)
        return tuple(getattr(output, name) for name in self.outputs)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's remarks on missing packages and on its internals."""
    loggers = [logging.getLogger(name) for name in ("onnxscript", "torch.onnx")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
