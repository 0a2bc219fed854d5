"""Training steps recorded once for each shape of batch and replayed, so that a GPU does not wait for its host.

A step of a base-size encoder is some thousand short kernels; started one at a time, they keep the GPU idle most of the
time. A CUDA graph starts them all at once. What a recording computes (forward pass, loss, backward pass, clipping) is what
the ordinary step computes, with new dropout in every replay. Two things are done for all parameters at a time instead of
one by one, with the same values: the casts of mixed precision, and the handing over of gradients. A parameter the loss does
not reach has a gradient of zeros rather than none, which leaves it where it is as well, since there is no weight decay.
"""

from __future__ import annotations

import contextlib
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import clip_grad_norm_
from torch.overrides import TorchFunctionMode

Work = Callable[[], None]
Recorder = Callable[[Work], Work]
ComputeLoss = Callable[[Callable[..., Any], dict[str, Tensor]], Tensor]  # of (model, inputs)


class RecordingError(RuntimeError):
    """A step cannot be recorded; the message says why and where."""


class RecordedSteps:
    """Computes loss and clipped gradients of batches, from the second batch of a shape on by replay.

    The first batch of each shape runs as it is: that warms up what a library sets up on first use, and whatever fails there
    is no matter of recording. `recorder` turns work into something that repeats it. `autocast_dtype` is the type in which
    the model's own autocast computes linear layers, None without one. All recordings write to the same gradients, so a new
    shape costs no memory for gradients of its own.
    """

    def __init__(
        self,
        model: nn.Module,
        compute_loss: ComputeLoss,
        max_norm: float,
        recorder: Recorder,
        autocast_dtype: torch.dtype | None = None,
    ) -> None:
        self._model, self._compute_loss, self._max_norm, self._recorder = model, compute_loss, max_norm, recorder
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        cast = [name for name in _linear_parameters(model) if name in trained] if autocast_dtype else []
        self._sources: list[Tensor] = [trained.pop(name) for name in cast]
        self._copies = {
            name: source.detach().to(autocast_dtype).requires_grad_()
            for name, source in zip(cast, self._sources, strict=True)
        }
        self._parameters = [*self._sources, *trained.values()]
        self._leaves = [*self._copies.values(), *trained.values()]  # what the loss is derived by
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
        _copy_all(list(self._copies.values()), self._sources)
        loss = self._compute_loss(self._call_model, inputs)
        gradients = torch.autograd.grad(loss, self._leaves, materialize_grads=True)
        cast = len(self._copies)
        _copy_all(self._gradients[:cast], gradients[:cast])
        _copy_all(self._gradients[cast:], gradients[cast:])
        self._norm.copy_(clip_grad_norm_(self._parameters, self._max_norm))
        self._loss.copy_(loss.detach())

    def _call_model(self, **inputs: Tensor) -> Any:
        return functional_call(self._model, self._copies, (), inputs)


def _linear_parameters(model: nn.Module) -> list[str]:
    """The names of all weights and biases that autocast casts at every use."""
    layers = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return [f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]


@torch.no_grad()
def _copy_all(targets: list[Tensor], sources: list[Tensor] | tuple[Tensor, ...]) -> None:
    """Copy tensors of one type to tensors of one type, in a few kernels."""
    if targets:
        torch._foreach_copy_(targets, sources)


class CudaRecorder:
    """Records work as CUDA graphs that share one pool of memory: they never run at the same time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        """What repeats the work; nothing is computed yet. `RecordingError` if it cannot be recorded."""
        graph = torch.cuda.CUDAGraph()
        stream, random_state = torch.cuda.current_stream(self._device), torch.cuda.get_rng_state(self._device)
        try:
            with torch.cuda.graph(graph, pool=self._pool), _MadeOnDevice(self._device), _waiting_is_an_error():
                work()
        except Exception as error:  # the same work has just run well: whatever fails here is the recording's fault
            _replace_random_state(self._device, random_state)
            if torch.cuda.current_stream(self._device) != stream:
                # CUDA broke the recording off, so torch could not end it: it is still on the recording's stream, and
                # its allocator keeps asking the graph.
                torch.cuda.set_stream(stream)
                _broken_graphs.append(graph)
            raise RecordingError(_reason(error)) from error
        return graph.replay


_broken_graphs: list[torch.cuda.CUDAGraph] = []


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
    generator = torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
    generator.graphsafe_set_state(torch.Generator(device).graphsafe_get_state())
    generator.set_state(state)


def _reason(error: BaseException) -> str:
    """The first line of the first error, and where it was raised, as seen from outside torch."""
    while error.__context__ is not None:
        error = error.__context__
    text = (str(error).splitlines() or [type(error).__name__])[0]
    inner = (str(Path(torch.__file__).parent), __file__)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(inner)]
    return f"{text}, at {frames[-1].filename}:{frames[-1].lineno}" if frames else text
