"""Measure size and speed of pruned models beside the unpruned ones.

Models run in torch on the CPU, in torch on a GPU (eagerly and as a CUDA graph) and in onnxruntime
on the CPU, there with 8-bit weights too. The CPU computes in float32, a GPU in the precision of a
run there. Eager calls of a small batch leave a fast GPU waiting for its host, so that they take the
host's time; as a CUDA graph they take the time of the GPU's own work.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from auber.config import make_config
from auber.export import Exported
from auber.export.dense import restore_units
from auber.export.int8 import quantise
from auber.export.onnx import Graph, missing_packages, require_packages, write_graph
from auber.export.speed import (
    USUAL_LENGTH,
    Amount,
    RunSpeed,
    Speed,
    SpeedProvenance,
    SpeedRequest,
    Timing,
)
from auber.export.subjects import Subject, choose_length, read_subjects
from auber.models.encoders import encoder_of
from auber.models.random_rows import random_rows
from auber.run import provenance
from auber.system.progress import Progress
from auber.system.records import parse
from auber.training.cuda_graphs import Capture, CaptureError, CudaGraphCapture
from auber.training.devices import Hardware, resolve_hardware
from auber.training.latency import Calls, Models, tokenizer_inputs, torch_calls
from auber.training.timing import Call, Limits, make_timer, side_by_side

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_VARIANTS = ("unpruned", "pruned", "unpruned int8", "pruned int8")


def measure_speed(
    request: SpeedRequest, *, command: str = "", progress: Progress | None = None
) -> Speed:
    """Measure every requested run in every requested runtime, one after the other."""
    progress, started = progress or Progress(), time.perf_counter()
    runtimes, left_out = choose_runtimes(request)
    subjects = read_subjects(request.runs, request.model, request.only)
    progress.plan([1.0] * len(subjects) * len(runtimes) * (1 + len(request.batches)))
    runs = tuple(
        _measure_run(subject, runtimes, request, progress, left_out) for subject in subjects
    )
    described = provenance.describe(runtimes[0].hardware)
    about = {key: described[key] for key in ("versions", "commit", "threads")}
    if any(runtime.name == "onnxruntime" for runtime in runtimes):
        about["versions"]["onnxruntime"] = metadata.version("onnxruntime")
    return Speed(
        command=command,
        runs=runs,
        left_out=tuple(left_out),
        seconds=time.perf_counter() - started,
        provenance=parse(SpeedProvenance, about, "provenance", "report it"),
    )


def time_exported(exported: Exported, *, limits: Limits, progress: Progress) -> Timing:
    """Time an ONNX graph on one row of the usual length beside the unpruned model.

    A run does not keep the unpruned weights. The removed units are put back as zeros instead: a
    product with zeros takes as long as any other.
    """
    assert exported.graph is not None, "only an ONNX graph can be timed"
    source, threads = exported.source, torch.get_num_threads()
    length = min(USUAL_LENGTH, source.encoder.num_positions)
    batch = random_rows(source.encoder, source.inputs, rows=1, length=length)
    with tempfile.TemporaryDirectory(prefix="auber-speed-") as folder:
        progress.plan([1.0, 1.0])
        progress.begin("writing unpruned graph", 0)
        unpruned = Path(folder) / "unpruned.onnx"
        write_graph(restore_units(source.model, source.encoder.removed), unpruned, source.inputs)
        progress.end()
        progress.begin("latency", limits.repeats)
        calls = [partial(Graph(path, threads), **batch) for path in (unpruned, exported.graph)]
        seconds = side_by_side(calls, make_timer(torch.device("cpu")), limits, progress.step)
        progress.end()
    setting = ("onnxruntime", "cpu", "float32")
    return Timing.of(setting, 1, length, ("unpruned", "exported"), seconds)


def _measure_run(
    subject: Subject,
    runtimes: list[Runtime],
    request: SpeedRequest,
    progress: Progress,
    left_out: list[str],
) -> RunSpeed:
    models = unpruned, pruned = subject.build()
    length = choose_length(unpruned, subject, request.length)
    encoder = encoder_of(pruned)
    timings = []
    with tempfile.TemporaryDirectory(prefix="auber-speed-") as folder:
        for runtime in runtimes:
            timer = make_timer(runtime.hardware.device)
            progress.begin(f"{subject.name}: preparing {runtime.name}", 0)
            calls = runtime.prepare(models, runtime.hardware, Path(folder))
            progress.end()
            for batch in request.batches:
                where = f"{subject.name}: {runtime.name}, {runtime.hardware.name}, batch {batch}"
                progress.begin(where, request.limits.repeats)
                try:
                    seconds = side_by_side(
                        calls(batch, length), timer, request.limits, progress.step
                    )
                except (MemoryError, RuntimeError) as error:
                    reason = _explain_failure(error)
                    if reason is None:
                        raise
                    left_out.append(f"{subject.name}: {runtime.name}, batch {batch}: {reason}")
                else:
                    timings.append(Timing.of(runtime.setting, batch, length, _VARIANTS, seconds))
                    progress.step(request.limits.repeats, timings[-1].words)
                progress.end()
        int8_bytes = [path.stat().st_size for path in _graphs(Path(folder))[2:] if path.exists()]
    return RunSpeed(
        name=subject.name,
        family=encoder.family,
        heads_removed=subject.plan.num_heads,
        heads=encoder.num_layers * encoder.num_heads,
        neurons_removed=subject.plan.num_neurons,
        neurons=encoder.num_layers * encoder.num_neurons,
        plan=subject.plan,
        parameters=_compare(model.num_parameters() for model in models),
        multiply_adds=_compare(count_multiply_adds(model, length) for model in models),
        int8_bytes=_compare(int8_bytes) if int8_bytes else None,
        timings=tuple(timings),
    )


def _compare(numbers: Iterable[int]) -> Amount:
    unpruned, pruned = numbers
    return Amount(unpruned=unpruned, pruned=pruned)


def _explain_failure(error: Exception) -> str | None:
    """Return why a batch is left out; None for an unexpected error."""
    if isinstance(error, CaptureError):
        return f"it cannot be captured: {error}"
    # On a CPU, torch and onnxruntime raise no particular class when memory runs out.
    is_memory = isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(
        words in str(error).lower()
        for words in ("allocate memory", "not enough memory", "storage size calculation overflowed")
    )
    return "it does not fit into the memory" if is_memory else None


# Runtimes


@dataclass(frozen=True)
class Runtime:
    """A runtime on a device; `prepare` returns calls of as many of `_VARIANTS` as it runs.

    It may write files into the folder it is given, which must exist until the calls are made.
    """

    name: str
    hardware: Hardware
    prepare: Callable[[Models, Hardware, Path], Calls]

    @property
    def setting(self) -> tuple[str, str, str]:
        """The runtime, device and precision."""
        return self.name, self.hardware.name, self.hardware.precision


def choose_runtimes(request: SpeedRequest) -> tuple[list[Runtime], list[str]]:
    """Return the requested runtimes, and those left out with the reason."""
    cpu = resolve_hardware(make_config(settings={"device": "cpu", "threads": request.threads}))
    runtimes, left_out = [], []
    if request.device in ("auto", "cpu"):
        runtimes.append(Runtime("torch", cpu, _prepare_torch))
    if request.device == "cuda" or (request.device == "auto" and torch.cuda.is_available()):
        gpu = resolve_hardware(make_config(settings={"device": "cuda"}))
        runtimes += [
            Runtime("torch", gpu, _prepare_torch),
            Runtime("torch CUDA graph", gpu, _prepare_cuda_graph),
        ]
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
            runtimes.append(Runtime("onnxruntime", cpu, _prepare_onnx))
    return runtimes, left_out


def _prepare_torch(models: Models, hardware: Hardware, _folder: Path) -> Calls:
    return torch_calls(models, hardware)


def _prepare_cuda_graph(models: Models, hardware: Hardware, _folder: Path) -> Calls:
    recorder, plain = CudaGraphCapture(hardware.device), torch_calls(models, hardware)
    return lambda rows, length: [_capture(call, recorder) for call in plain(rows, length)]


def _prepare_onnx(models: Models, hardware: Hardware, folder: Path) -> Calls:
    encoder, inputs = encoder_of(models[0]), tokenizer_inputs(models[0])
    graphs = _graphs(folder)
    for model, graph, small in zip(models, graphs[:2], graphs[2:], strict=True):
        write_graph(model, graph, inputs)
        quantise(graph, small)
    opened = [Graph(graph, hardware.threads) for graph in graphs]

    def calls(rows: int, length: int) -> list[Call]:
        batch = random_rows(encoder, inputs, rows=rows, length=length)
        return [partial(graph, **batch) for graph in opened]

    return calls


def _graphs(folder: Path) -> list[Path]:
    return [folder / f"{name}.onnx" for name in _VARIANTS]


def _capture(call: Call, recorder: Capture) -> Call:
    """Return a call that replays this one with the same inputs and output tensors."""
    for _ in range(2):  # what libraries set up at first use cannot be captured
        call()
    output: list[object] = []
    replay = recorder(lambda: output.append(call()))

    def again() -> object:
        replay()
        return output[-1]

    return again


# Sizes


@torch.no_grad()
def count_multiply_adds(model: PreTrainedModel, length: int) -> int:
    """Return the multiply-adds of one row of this many tokens, alone in its batch.

    Counted are matrix products, convolutions and attention as torch computes them. A window saves
    nothing here, because most implementations compute what they mask.
    """
    batch = random_rows(encoder_of(model), tokenizer_inputs(model), rows=1, length=length)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(**batch)
    return int(counter.get_total_flops()) // 2
