"""The state of a layer: one number per head, from the norm of the head's value matrix.

The norm is entrywise: by Lemma 1 of the paper it bounds the norm of the head's output if the
projection has no bias. The norms are standardised over the layer's heads, then softmax is applied,
so a state is positive and sums to 1. The game sets the entries of removed heads to 0. For a
feed-forward, the norm is that of each block's columns of the contracting matrix.

Where the paper is silent: the standard deviation is the population's, and equal norms give the
uniform state.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from auber.errors import ConfigError, ModelError, unknown_name

NORMS = {"l1": 1, "l2": 2}  # the order of each

# Equal heads whose entries come in another order differ by float64 rounding, about 1e-15 of their
# norm. Standardising would turn that into a full deviation.
_ROUNDING = 1e-12


def head_norms(weight: Tensor, num_heads: int, norm: str = "l1") -> Tensor:
    """Return the entrywise norm of each head's rows of a projection.

    (num_heads * head_dim, hidden) -> (num_heads,), float64, on the CPU.
    """
    if norm not in NORMS:
        raise ConfigError(unknown_name("norm", norm, NORMS))
    if weight.ndim != 2 or num_heads < 1 or weight.shape[0] % num_heads:
        raise ModelError(
            f"state: a projection of {num_heads} heads must be a matrix of {num_heads} x head_dim "
            f"rows, found shape {tuple(weight.shape)}"
        )
    # float64 on the CPU, so that the state depends neither on the device nor on the threads
    rows = weight.detach().to("cpu", torch.float64).reshape(num_heads, -1)
    norms: Tensor = torch.linalg.vector_norm(rows, ord=NORMS[norm], dim=1)
    return norms


def head_state(norms: Tensor) -> Tensor:
    """Return the initial state of a layer: (num_heads,) -> (num_heads,), float32."""
    if norms.ndim != 1 or norms.numel() == 0 or not bool(torch.isfinite(norms).all()):
        raise ModelError(
            f"state: there must be one finite norm per head, found {norms.tolist()}; "
            "check the model's weights"
        )
    exact = norms.detach().to("cpu", torch.float64)
    centred = exact - exact.mean()
    deviation = centred.square().mean().sqrt()
    if deviation <= _ROUNDING * exact.abs().max():
        return torch.full((len(exact),), 1 / len(exact))
    return torch.softmax(centred / deviation, dim=0).float()


def block_state(weight: Tensor, blocks: Sequence[Sequence[int]], norm: str = "l1") -> Tensor:
    """Return the initial state of a feed-forward from its contracting matrix (hidden, neurons).

    Each of `blocks` has positions of neurons; its norm is that of their columns. The result has
    shape (blocks,), as for heads.
    """
    norms = [head_norms(weight[:, list(block)], 1, norm) for block in blocks]
    return head_state(torch.cat(norms))


def projection_state(weight: Tensor, num_heads: int, norm: str) -> Tensor:
    """Return the initial state of a layer from the weight of one of its projections."""
    return head_state(head_norms(weight, num_heads, norm))
