"""Training steps captured as CUDA graphs, once for each shape of batch.

A step of a base-size encoder launches some thousand short kernels; launched one at a time, they
keep the GPU idle most of the time. A captured step (forward pass, loss, backward pass, clipping)
computes what the ordinary step computes, with new dropout in every replay. A parameter that the
loss does not reach has a gradient of zeros instead of none, which leaves it unchanged too, because
there is no weight decay.

In mixed precision a captured step computes with a copy of all parameters in half precision, where
autocast, which ordinary steps use, casts before and after most layers. The weights that the
optimiser changes and the gradients are in float32 in both.

The optimiser is not part of the graph. So one graph serves every tuning of a model whose tensors
stay in place (`StepCache`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import clip_grad_norm_

from auber.training.cuda_graphs import Batch, Capture, ShapeGraphs

ComputeLoss = Callable[[Callable[..., Any], Batch], Tensor]  # of (model, inputs)


class CapturedSteps:
    """Computes the loss and the clipped gradients of batches.

    `dtype` is the type to compute in, None for that of the parameters. All graphs write to the same
    gradients, so a new shape needs no memory for gradients of its own.
    """

    def __init__(
        self,
        model: nn.Module,
        compute_loss: ComputeLoss,
        max_norm: float,
        capture: Capture,
        dtype: torch.dtype | None = None,
    ) -> None:
        self._model, self._compute_loss, self._max_norm = model, compute_loss, max_norm
        self._take_step = ShapeGraphs(self._step, capture)
        own = dict(model.named_parameters())
        self._sources, self._copies = list(own.values()), dict[str, Tensor]()
        if dtype is not None:
            self._copies = {
                name: each.detach().to(dtype).requires_grad_(each.requires_grad)
                for name, each in own.items()
            }
        trained = [name for name, each in own.items() if each.requires_grad]
        self._parameters = [own[name] for name in trained]
        # The loss is derived by these.
        self._leaves = [self._copies.get(name, own[name]) for name in trained]
        self._gradients = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._loss = torch.zeros((), device=self._parameters[0].device)
        self.norm = torch.zeros_like(self._loss)  # of the last gradients, before clipping

    def __call__(self, inputs: Batch) -> Tensor:
        """Set the gradients of a batch and return its loss, on the device; raise `CaptureError`."""
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient
        self._take_step(inputs)
        return self._loss.clone()  # the next step overwrites it

    def _step(self, inputs: Batch) -> None:
        if self._copies:
            _copy_all([*self._copies.values()], self._sources)
        loss = self._compute_loss(self._call_model, inputs)
        gradients = torch.autograd.grad(loss, self._leaves, materialize_grads=True)
        _copy_all(self._gradients, gradients)
        self.norm.copy_(clip_grad_norm_(self._parameters, self._max_norm))
        self._loss.copy_(loss.detach())

    def _call_model(self, **inputs: Tensor) -> Any:
        return functional_call(self._model, self._copies, (), inputs)


class StepCache:
    """Captured steps that outlive a tuning, for a model that is tuned several times in a row.

    They hold the memory of a step until they are dropped.
    """

    def __init__(self) -> None:
        self._steps: CapturedSteps | None = None
        self._made_for: tuple[Any, ...] = ()

    def steps(
        self,
        model: nn.Module,
        compute_loss: ComputeLoss,
        max_norm: float,
        capture: Capture,
        dtype: torch.dtype | None,
    ) -> CapturedSteps:
        """Return the cached steps if they still fit the model, else new ones."""
        wanted = (id(model), compute_loss, max_norm, dtype, _places(model))
        if self._steps is None or self._made_for != wanted:
            self.drop()  # first, to free the memory for the new ones
            self._made_for = wanted
            self._steps = CapturedSteps(model, compute_loss, max_norm, capture, dtype)
        return self._steps

    def drop(self) -> None:
        """Empty the cache, and free the memory of its graphs."""
        if self._steps is not None:
            self._steps = None
            gc.collect()  # the steps refer to themselves


def _places(model: nn.Module) -> list[tuple[Any, ...]]:
    """Return address and shape of the tensors that a graph uses; removing heads changes both."""
    tensors = [*model.parameters(), *model.buffers()]
    return [(tensor.data_ptr(), tensor.shape, tensor.requires_grad) for tensor in tensors]


@torch.no_grad()
def _copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy tensors of one type to tensors of one type, in a few kernels."""
    torch._foreach_copy_(list(targets), list(sources))
