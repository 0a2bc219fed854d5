"""A model as an ONNX graph: written by torch's exporter, run by onnxruntime.

The graph takes any batch size and any length up to the model's positions, and gives in float32 what a model of its kind
gives: `logits`, or `start_logits` and `end_logits`. Neither package is needed before these functions are called; onnxruntime is
told to report to nobody.
"""

from __future__ import annotations

import importlib
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from auber.errors import CheckpointError, ConfigError
from auber.export.source import in_float32
from auber.export.zeros import put_back
from auber.models.encoders import encoder_of
from auber.models.random_rows import random_rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PACKAGES = ("onnx", "onnxruntime", "onnxscript")
# what a graph of each kind gives, by the names these have in the model's own output
GIVES = {"sequence": ("logits",), "tokens": ("logits",), "spans": ("start_logits", "end_logits")}
_AXES = {0: "batch", 1: "length"}
_TALKATIVE = ("onnxscript", "torch.onnx")  # loggers
_TRACED = (2, 8)  # rows and length of the example; neither is kept


def missing_packages() -> list[str]:
    """What would have to be installed."""
    return [name for name in PACKAGES if find_spec(name) is None]


def require_packages(wanted_by: str) -> None:
    """Raise `ConfigError` unless graphs can be written and run; `wanted_by` names the option."""
    if missing := missing_packages():
        raise ConfigError(
            f"{wanted_by} needs {', '.join(missing)}, not installed here; pip install 'auber[onnx]'"
        )


def write_graph(model: PreTrainedModel, path: Path, inputs: Sequence[str]) -> None:
    """Write the classifier as one file (beside it `model.onnx.data` from 2 GB on), with these inputs."""
    encoder = encoder_of(model)
    # onnxruntime cannot reshape a tensor of no heads; one head of zeros in its place computes the same
    empty = [layer for layer in range(encoder.num_layers) if not encoder.present(layer)]
    model = put_back(model, {layer: [0] for layer in empty}) if empty else model
    rows, length = _TRACED
    gives = GIVES[encoder.kind.name]
    batch = random_rows(encoder, inputs, rows=rows, length=min(length, encoder.num_positions))
    with _quiet():
        try:
            program = torch.onnx.export(
                _Given(model, gives).eval(),
                tuple(batch[name] for name in inputs),
                dynamo=True,
                dynamic_shapes=tuple(_AXES for _ in inputs),
                input_names=list(inputs),
                output_names=list(gives),
                verbose=False,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            reason = str(error.__cause__ or error).strip().splitlines()[0]
            raise CheckpointError(
                f"{type(model).__name__}: torch cannot write it as an ONNX graph ({reason}); "
                "try the versions constraints.txt names"
            ) from error
        assert program is not None, "the exporter hands the program back when it is given no file"
        for node in program.model.graph:
            node.metadata_props.clear()  # stack traces, with the paths of this machine
        program.save(path)


def open_graph(path: Path, threads: int) -> Any:
    """An onnxruntime session on the CPU."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read when the package is imported
    onnxruntime = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors alone
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def graph_call(session: Any, batch: dict[str, Tensor]) -> Callable[[], SimpleNamespace]:
    """A call that runs the graph on a batch; what it gives has the names of the model's own output."""
    arrays = {name: tensor.numpy() for name, tensor in batch.items()}
    gives = [each.name for each in session.get_outputs()]

    def call() -> SimpleNamespace:
        found = map(torch.from_numpy, session.run(gives, arrays))
        return SimpleNamespace(**dict(zip(gives, found, strict=True)))

    return call


class _Given(nn.Module):
    """The classifier with its inputs in order and these of its outputs alone, in float32."""

    def __init__(self, model: PreTrainedModel, gives: Sequence[str]) -> None:
        super().__init__()
        self.model, self.gives = in_float32(model), gives

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        output = self.model(input_ids=input_ids, attention_mask=attention_mask, **types)
        return tuple(getattr(output, name) for name in self.gives)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks on packages that are not here and on its own innards."""
    loggers = [logging.getLogger(name) for name in _TALKATIVE]
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
