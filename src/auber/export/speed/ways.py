"""The runtimes a model is timed in: torch on the CPU, torch on a GPU, plain and recorded, onnxruntime on the CPU.

A way takes the two models and gives, batch by batch, two calls that do the same work with each. On the CPU everything is
float32; on a GPU it is what a run computes in there. Plain calls of a small batch leave a fast GPU waiting for its host, so that
their time is the host's; recorded as a CUDA graph they take the time of the GPU's own work.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from auber.config import make_config
from auber.export.graph import (
    graph_call,
    missing_packages,
    open_graph,
    require_packages,
    write_graph,
)
from auber.export.speed.request import Request
from auber.models.encoders import encoder_of
from auber.models.random_rows import random_rows
from auber.training.cuda_graphs import Capture, CudaGraphCapture
from auber.training.devices import Hardware, resolve_hardware
from auber.training.latency import Calls, Models, open_torch, tokenizer_inputs
from auber.training.timing import Call


@dataclass(frozen=True)
class Way:
    """One runtime on one device."""

    runtime: str
    hardware: Hardware
    open: Callable[[Models, Hardware], AbstractContextManager[Calls]]

    @property
    def words(self) -> tuple[str, str, str]:
        """Runtime, device and precision."""
        return self.runtime, self.hardware.name, self.hardware.precision


def choose_ways(request: Request) -> tuple[list[Way], list[str]]:
    """The ways a request asks for, and those it leaves out with the reason."""
    cpu = resolve_hardware(make_config(settings={"device": "cpu", "threads": request.threads}))
    ways, left_out = [], []
    if request.device in ("auto", "cpu"):
        ways.append(Way("torch", cpu, open_torch))
    if request.device == "cuda" or (request.device == "auto" and torch.cuda.is_available()):
        gpu = resolve_hardware(make_config(settings={"device": "cuda"}))
        ways += [Way("torch", gpu, open_torch), Way("torch CUDA graph", gpu, _open_recorded)]
    elif request.device == "auto":
        left_out.append("torch on a GPU: there is none here")
    if request.onnx:
        require_packages("--onnx")
    if request.onnx or (request.onnx is None and request.device != "cuda"):
        if missing := missing_packages():
            left_out.append(
                f"onnxruntime: {', '.join(missing)} not installed; pip install 'auber[onnx]'"
            )
        else:
            ways.append(Way("onnxruntime", cpu, _open_onnx))
    return ways, left_out


@contextmanager
def _open_onnx(models: Models, hardware: Hardware) -> Iterator[Calls]:
    encoder, inputs = encoder_of(models[0]), tokenizer_inputs(models[0])
    with tempfile.TemporaryDirectory(prefix="auber-speed-") as folder:
        sessions = []
        for place, model in enumerate(models):
            path = Path(folder) / f"{place}.onnx"
            write_graph(model, path, inputs)
            sessions.append(open_graph(path, hardware.threads))

        def calls(rows: int, length: int) -> list[Call]:
            batch = random_rows(encoder, inputs, rows=rows, length=length)
            return [graph_call(session, batch) for session in sessions]

        yield calls


@contextmanager
def _open_recorded(models: Models, hardware: Hardware) -> Iterator[Calls]:
    capture = CudaGraphCapture(hardware.device)
    with open_torch(models, hardware) as plain:
        yield lambda rows, length: [_recorded_call(call, capture) for call in plain(rows, length)]


def _recorded_call(call: Call, capture: Capture) -> Call:
    """The call recorded: its inputs and its output stay where they are. `CaptureError` if it cannot be."""
    for _ in range(2):  # what libraries set up at first use cannot be recorded
        call()
    output: list[object] = []
    replay = capture(lambda: output.append(call()))

    def again() -> object:
        replay()
        return output[-1]

    return again
