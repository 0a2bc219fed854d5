"""Training steps recorded once for each shape of batch and replayed, so that a GPU does not wait for its host.

A step of a base-size encoder is some thousand short kernels; started one at a time, they keep the GPU idle most of the
time. A CUDA graph starts them all at once. What a recording computes (forward pass, loss, backward pass, clipping) is what
the ordinary step computes, with new dropout in every replay. Two things are done for all parameters at a time instead of
one by one, with the same values: the casts of mixed precision, and the handing over of gradients. A parameter the loss does
not reach has a gradient of zeros rather than none, which leaves it where it is as well, since there is no weight decay.

The optimiser is no part of a recording, so one serves every tuning of a model whose tensors stay where they are (`KeptSteps`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import clip_grad_norm_

from auber.training.cuda_graphs import Batch, Recorder, ShapeRecordings

ComputeLoss = Callable[[Callable[..., Any], Batch], Tensor]  # of (model, inputs)


class RecordedSteps:
    """Computes loss and clipped gradients of batches, from the second batch of a shape on by replay.

    `recorder` turns work into something that repeats it. `autocast_dtype` is the type in which the model's own autocast
    computes linear layers, None without one. All recordings write to the same gradients, so a new shape costs no memory for
    gradients of its own.
    """

    def __init__(
        self,
        model: nn.Module,
        compute_loss: ComputeLoss,
        max_norm: float,
        recorder: Recorder,
        autocast_dtype: torch.dtype | None = None,
    ) -> None:
        self._model, self._compute_loss, self._max_norm = model, compute_loss, max_norm
        self._take_step = ShapeRecordings(self._step, recorder)
        trained = {
            name: parameter
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        }
        cast = (
            [name for name in _linear_parameters(model) if name in trained]
            if autocast_dtype
            else []
        )
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
        self._made_for = compute_loss, max_norm, autocast_dtype, _places(model)

    def serve(
        self,
        model: nn.Module,
        compute_loss: ComputeLoss,
        max_norm: float,
        autocast_dtype: torch.dtype | None,
    ) -> bool:
        """Whether these are the steps of that model as it is now."""
        return model is self._model and self._made_for == (
            compute_loss,
            max_norm,
            autocast_dtype,
            _places(model),
        )

    @property
    def norm(self) -> Tensor:
        """The norm of the last gradients before they were clipped, on the device."""
        return self._norm

    def __call__(self, inputs: Batch) -> Tensor:
        """The loss of a batch, on the device; the parameters have their gradients. `RecordingError` if it cannot be."""
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient
        self._take_step(inputs)
        return self._loss.clone()  # the next step overwrites it

    def _step(self, inputs: Batch) -> None:
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


class KeptSteps:
    """Recorded steps that outlive a tuning, for a model that is tuned several times in a row.

    They keep the memory that a step needs, until they are dropped.
    """

    def __init__(self) -> None:
        self._steps: RecordedSteps | None = None

    def steps(
        self,
        model: nn.Module,
        compute_loss: ComputeLoss,
        max_norm: float,
        recorder: Recorder,
        autocast_dtype: torch.dtype | None,
    ) -> RecordedSteps:
        """The steps that were kept, if they still serve the model; else new ones, which are kept from now on."""
        if self._steps is None or not self._steps.serve(
            model, compute_loss, max_norm, autocast_dtype
        ):
            self.drop()  # first, so that the old ones' memory is there for the new
            self._steps = RecordedSteps(model, compute_loss, max_norm, recorder, autocast_dtype)
        return self._steps

    def drop(self) -> None:
        """Keep nothing."""
        self._steps = None


def _places(model: nn.Module) -> list[tuple[Any, ...]]:
    """Where the tensors of a model lie that a recording reads and writes, and their shapes: heads that go change both."""
    tensors = [*model.parameters(), *model.buffers()]
    return [(tensor.data_ptr(), tensor.shape, tensor.requires_grad) for tensor in tensors]


def _linear_parameters(model: nn.Module) -> list[str]:
    """The names of all weights and biases that autocast casts at every use."""
    layers = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return [f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]


@torch.no_grad()
def _copy_all(targets: list[Tensor], sources: list[Tensor] | tuple[Tensor, ...]) -> None:
    """Copy tensors of one type to tensors of one type, in a few kernels."""
    if targets:
        torch._foreach_copy_(targets, sources)
