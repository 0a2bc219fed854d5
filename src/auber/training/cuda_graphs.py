"""Work on a GPU recorded once as a CUDA graph and replayed, so that the GPU does not wait for its host between kernels.

What is recorded must read its inputs from, and leave its results in, tensors that stay where they are, and must not wait for
the device. Work that cannot be recorded raises `RecordingError`, and torch goes on as if nothing had been tried.
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

Work = Callable[[], None]
Recorder = Callable[[Work], Work]
Batch = dict[str, Tensor]


class RecordingError(RuntimeError):
    """Work cannot be recorded; the message says why and where."""


class CudaRecorder:
    """Records work as CUDA graphs that share one pool of memory: they never run at the same time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._living: WeakSet[torch.cuda.CUDAGraph] = WeakSet()

    def __call__(self, work: Work) -> Work:
        """What repeats the work; nothing is computed yet. `RecordingError` if it cannot be recorded."""
        graph = torch.cuda.CUDAGraph()
        # Held until the end: torch gives up a pool that all its graphs have left, and refuses the next one that asks for it.
        sharer = next(iter(self._living), None)
        pool = None if sharer is None else sharer.pool()
        stream, random_state = (
            torch.cuda.current_stream(self._device),
            torch.cuda.get_rng_state(self._device),
        )
        try:
            with (
                torch.cuda.graph(graph, pool=pool),
                _MadeOnDevice(self._device),
                _waiting_is_an_error(),
            ):
                work()
        except (
            Exception
        ) as error:  # the same work has just run well: whatever fails here is the recording's fault
            _replace_random_state(self._device, random_state)
            if torch.cuda.current_stream(self._device) != stream:
                # CUDA broke the recording off, so torch could not end it: it is still on the recording's stream, and
                # its allocator keeps asking the graph.
                torch.cuda.set_stream(stream)
                _broken_graphs.append(graph)
            raise RecordingError(_reason(error)) from error
        self._living.add(graph)
        return graph.replay


_broken_graphs: list[torch.cuda.CUDAGraph] = []


def recorder_for(device: torch.device) -> Recorder | None:
    """What records work on a device; None where nothing needs to be."""
    return CudaRecorder(device) if device.type == "cuda" else None


class ShapeRecordings:
    """Work on a batch, recorded once for each shape of its tokens and replayed from the second batch of a shape on.

    The first batch of each shape runs as it is: that warms up what a library sets up on first use, and whatever fails there
    is no matter of recording.
    """

    def __init__(self, work: Callable[[Batch], None], recorder: Recorder) -> None:
        self._work, self._recorder = work, recorder
        self._seen: set[torch.Size] = set()
        self._recordings: dict[torch.Size, tuple[Batch, Work]] = {}

    def __call__(self, batch: Batch) -> None:
        """Do the work. `RecordingError` if it cannot be recorded: then it is not done."""
        shape = batch["input_ids"].shape  # (rows, width)
        if shape not in self._seen:
            self._seen.add(shape)
            self._work(batch)
            return
        if shape not in self._recordings:
            buffers = {name: tensor.clone() for name, tensor in batch.items()}
            self._recordings[shape] = buffers, self._recorder(lambda: self._work(buffers))
        buffers, replay = self._recordings[shape]
        for name, buffer in buffers.items():
            buffer.copy_(batch[name])
        replay()


class _MadeOnDevice(TorchFunctionMode):
    """Makes on the device what some models make on the host and copy, which cannot be recorded.

    Under transformers before 5.22 these are the positions of MPNet and the zero in the mask of eager attention.
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
def _waiting_is_an_error() -> Iterator[None]:
    """Let torch refuse to wait for the GPU before CUDA does: CUDA's refusal would break the recording under way."""
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that it does not find every wait
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


def _replace_random_state(device: torch.device, state: Tensor) -> None:
    """Give the device's generator a new state in place of the one that a broken recording does not hand back."""
    generator = torch.cuda.default_generators[
        torch.cuda.current_device() if device.index is None else device.index
    ]
    generator.graphsafe_set_state(torch.Generator(device).graphsafe_get_state())
    generator.set_state(state)


def _reason(error: BaseException) -> str:
    """The first line of the first error, and where it was raised, as seen from outside torch."""
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
