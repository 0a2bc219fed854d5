"""Training steps recorded once for each shape of batch and replayed, so that a GPU does not wait for its host.

A step of a base-size encoder is some two thousand short kernels; started one at a time, they keep the GPU idle most of the
time. A CUDA graph starts them all at once. What a recording computes (forward pass, loss, backward pass, clipping) is what
the ordinary step computes, with new dropout in every replay; a parameter the loss does not reach has a gradient of zeros
rather than none, which leaves it where it is as well, since there is no weight decay.
"""

from __future__ import annotations

import contextlib
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.utils import clip_grad_norm_

Work = Callable[[], None]
Recorder = Callable[[Work], Work]


class RecordingError(RuntimeError):
    """A step cannot be recorded; the message says why and where."""


class RecordedSteps:
    """Computes loss and clipped gradients of batches, from the second batch of a shape on by replay.

    The first batch of each shape runs as it is: that warms up what a library sets up on first use, and whatever fails there
    is no matter of recording. `recorder` turns work into something that repeats it. All recordings write to the same
    gradients, so a new shape costs no memory for gradients of its own.
    """

    def __init__(
        self,
        parameters: Iterable[Parameter],
        compute_loss: Callable[[dict[str, Tensor]], Tensor],
        max_norm: float,
        recorder: Recorder,
    ) -> None:
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._compute_loss, self._max_norm, self._recorder = compute_loss, max_norm, recorder
        self._gradients = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._loss = torch.zeros((), device=self._parameters[0].device)
        self._norm = torch.zeros_like(self._loss)
        self._seen: set[torch.Size] = set()
        self._recordings: dict[torch.Size, tuple[dict[str, Tensor], Work]] = {}

    @property
    def norm(self) -> Tensor:
        """The norm of the last gradients before they were clipped, on the device."""
        return self._norm

    def __call__(self, inputs: dict[str, Tensor]) -> Tensor:
        """The loss of a batch, on the device; the parameters have their gradients. `RecordingError` if it cannot be."""
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient
        shape = inputs["input_ids"].shape  # (rows, width)
        if shape in self._recordings:
            buffers, replay = self._recordings[shape]
            for name, buffer in buffers.items():
                buffer.copy_(inputs[name])
            replay()
        elif shape in self._seen:
            buffers = {name: tensor.clone() for name, tensor in inputs.items()}
            replay = self._recorder(lambda: self._step(buffers))
            self._recordings[shape] = buffers, replay
            replay()
        else:
            self._seen.add(shape)
            self._step(inputs)
        return self._loss.clone()  # the next step overwrites it

    def _step(self, inputs: dict[str, Tensor]) -> None:
        torch._foreach_zero_(self._gradients)
        loss = self._compute_loss(inputs)
        loss.backward()  # type: ignore[no-untyped-call]
        self._norm.copy_(clip_grad_norm_(self._parameters, self._max_norm))
        self._loss.copy_(loss.detach())


class CudaRecorder:
    """Records work as CUDA graphs that share one pool of memory: they never run at the same time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        """What repeats the work; nothing is computed yet. `RecordingError` if it cannot be recorded."""
        graph = torch.cuda.CUDAGraph()
        random_state = torch.cuda.get_rng_state(self._device)
        try:
            with (
                torch.cuda.graph(graph, pool=self._pool),
                # MPNet of transformers before 5.22 makes its positions on the CPU, and copying them cannot be recorded.
                torch.device(self._device),
                _waiting_is_an_error(),
            ):
                work()
        except Exception as error:  # the same work has just run well: whatever fails here is the recording's fault
            _replace_random_state(self._device, random_state)
            raise RecordingError(_reason(error)) from error
        return graph.replay


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
    """Give the device's generator a state of its own again: a broken recording never hands the old one back."""
    generator = torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
    generator.graphsafe_set_state(torch.Generator(device).graphsafe_get_state())
    generator.set_state(state)


def _reason(error: BaseException) -> str:
    """The first line of the first error, and where it was raised."""
    while error.__context__ is not None:
        error = error.__context__
    text = (str(error).splitlines() or [type(error).__name__])[0]
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{text}, at {place.filename}:{place.lineno}"
