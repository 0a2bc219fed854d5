"""Capture a computation as a CUDA graph and replay it, so that the GPU never waits for its host.

A captured computation must read its inputs from, and leave its results in, tensors that stay in
place, and must not wait for the device. If it cannot be captured, `CaptureError` is raised, and
torch continues as if nothing had been tried.
"""

from __future__ import annotations

import contextlib
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

Computation = Callable[[], None]
Capture = Callable[[Computation], Computation]  # from a computation to its replay
Batch = dict[str, Tensor]


class CaptureError(RuntimeError):
    """A computation cannot be captured; the message says why and where."""


class CudaGraphCapture:
    """Captures computations as CUDA graphs that share memory, because they never run together."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._living: WeakSet[torch.cuda.CUDAGraph] = WeakSet()

    def __call__(self, computation: Computation) -> Computation:
        """Return the replay of a computation, without computing it; raise `CaptureError`."""
        graph = torch.cuda.CUDAGraph()
        # Hold a living graph until the end: torch releases a pool that no graph uses any longer,
        # and refuses the next graph that asks for it.
        sharer = next(iter(self._living), None)
        pool = None if sharer is None else sharer.pool()
        stream = torch.cuda.current_stream(self._device)
        random_state = torch.cuda.get_rng_state(self._device)
        try:
            with (
                torch.cuda.graph(graph, pool=pool),
                _CreateOnDevice(self._device),
                _error_on_synchronization(),
            ):
                computation()
        # The computation has just run without capture, so any failure here is caused by it.
        except Exception as error:
            _replace_random_state(self._device, random_state)
            if torch.cuda.current_stream(self._device) != stream:
                # CUDA aborted the capture, so torch could not end it: the current stream is still
                # the capture's, and the allocator still refers to the graph.
                torch.cuda.set_stream(stream)
                _broken_graphs.append(graph)
            raise CaptureError(_reason(error)) from error
        self._living.add(graph)
        return graph.replay


_broken_graphs: list[torch.cuda.CUDAGraph] = []


def capture_for(device: torch.device) -> Capture | None:
    """Return the capture for a device; None if it needs none."""
    return CudaGraphCapture(device) if device.type == "cuda" else None


class ShapeGraphs:
    """A computation on a batch, captured once for each shape of its tokens.

    The first batch of each shape runs as it is: libraries set themselves up on first use, and an
    error there is not one of the capture. From the second on, the graph is replayed.
    """

    def __init__(self, compute: Callable[[Batch], None], capture: Capture) -> None:
        self._compute, self._capture = compute, capture
        self._seen: set[torch.Size] = set()
        self._graphs: dict[torch.Size, tuple[Batch, Computation]] = {}

    def __call__(self, batch: Batch) -> None:
        """Compute; after a `CaptureError` nothing has been computed."""
        shape = batch["input_ids"].shape  # (rows, width)
        if shape not in self._seen:
            self._seen.add(shape)
            self._compute(batch)
            return
        if shape not in self._graphs:
            buffers = {name: tensor.clone() for name, tensor in batch.items()}
            self._graphs[shape] = buffers, self._capture(lambda: self._compute(buffers))
        buffers, replay = self._graphs[shape]
        for name, buffer in buffers.items():
            buffer.copy_(batch[name])
        replay()


class _CreateOnDevice(TorchFunctionMode):
    """Create on the device what some models create on the host and copy, which is not capturable.

    Before transformers 5.22 these are MPNet's positions and the zero in the eager attention mask.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.arange:
            kwargs = {"device": self._device, **kwargs}
        elif func is torch.tensor and args and isinstance(args[0], bool | int | float):
            func, args = torch.full, ((), *args)  # a kernel that fills, in place of a copy
        return func(*args, **kwargs)


@contextlib.contextmanager
def _error_on_synchronization() -> Iterator[None]:
    """Let torch raise an error before it waits for the GPU.

    CUDA would refuse as well, but that would break the capture.
    """
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that it does not detect every wait
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


def _replace_random_state(device: torch.device, state: Tensor) -> None:
    """Give the device's generator a new state; a broken capture does not return the old one."""
    index = torch.cuda.current_device() if device.index is None else device.index
    generator = torch.cuda.default_generators[index]
    generator.graphsafe_set_state(torch.Generator(device).graphsafe_get_state())
    generator.set_state(state)


def _reason(error: BaseException) -> str:
    """Return the first line of the first error, and the place outside torch that raised it."""
    while error.__context__ is not None:
        error = error.__context__
    text = (str(error).splitlines() or [type(error).__name__])[0]
    inner = (str(Path(torch.__file__).parent), __file__)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(inner)
    ]
    return f"{text}, at {frames[-1].filename}:{frames[-1].lineno}" if frames else text
