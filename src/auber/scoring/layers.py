"""One encoder layer on packed tokens: the same function the model computes in eval mode, with nothing it need not do.

Query, key and value are one matrix product. On a GPU attention and the residual norms are kernels of ours, and the
feed-forward's GELU is the matrix product's epilogue: that one is the tanh form, whose distance from the exact one (at most
5e-4) is below the rounding of bfloat16. In float32, on any device, everything is exact.
"""

from __future__ import annotations

import logging
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F

from auber.encoders.base import Encoder
from auber.scoring.slabs import Slab

logger = logging.getLogger(__name__)


def load_kernels(device: torch.device) -> ModuleType | None:
    """The GPU kernels, None where there is no CUDA device."""
    if device.type != "cuda":
        return None
    try:
        from auber.scoring import kernels
    except ImportError as error:
        logger.warning("scoring without its GPU kernels, several times slower: %s", error)
        return None
    return kernels


class PackedLayer:
    """A layer's weights, arranged for packed tokens. The model must be in the scorer's dtype and on its device."""

    def __init__(self, encoder: Encoder, layer: int, bias: torch.Tensor | None, kernels: Any) -> None:
        parts = encoder.parts(layer)
        projections = (parts.query, parts.key, parts.value)
        self._projection = torch.cat([linear.weight for linear in projections])  # (3 * width, hidden)
        self._projection_bias = torch.cat([linear.bias for linear in projections])  # (3 * width,)
        self._parts = parts
        self._head_dim = encoder.head_dim
        self._width = parts.query.out_features  # present_heads * head_dim
        self._bias = bias  # (present_heads, longest, longest) or None
        fits = kernels is not None and encoder.head_dim in kernels.HEAD_DIMS and self._width > 0
        self._kernels = kernels if fits else None
        self._offsets = _by_offset(bias) if fits and bias is not None else None
        self._gelu_epilogue = fits and parts.expand.weight.dtype == torch.bfloat16 and _is_gelu(parts.activation)

    def context(self, hidden: torch.Tensor, slab: Slab) -> torch.Tensor:
        """What the output projection reads, for every token: (tokens, present_heads * head_dim)."""
        projected = F.linear(hidden, self._projection, self._projection_bias)  # (tokens, 3 * width)
        query, key, value = (projected.narrow(1, part * self._width, self._width) for part in range(3))
        return self._attend(query, key, value, slab, first_only=False)

    def first_context(self, hidden: torch.Tensor, slab: Slab) -> torch.Tensor:
        """The same for the first token of each row alone: (rows, present_heads * head_dim)."""
        width = self._width
        query = F.linear(hidden[slab.firsts], self._projection[:width], self._projection_bias[:width])
        projected = F.linear(hidden, self._projection[width:], self._projection_bias[width:])  # (tokens, 2 * width)
        key, value = projected.narrow(1, 0, width), projected.narrow(1, width, width)
        return self._attend(query, key, value, slab, first_only=True)

    def finish(self, context: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """The layer's output from `context` and the layer's input, token by token."""
        parts = self._parts
        attended = self._add_norm(parts.output(context), hidden, parts.attention_norm)
        if self._gelu_epilogue:
            expanded = torch._addmm_activation(parts.expand.bias, attended, parts.expand.weight.t(), use_gelu=True)
        else:
            expanded = parts.activation(parts.expand(attended))
        return self._add_norm(parts.contract(expanded), attended, parts.output_norm)

    def _add_norm(self, update: torch.Tensor, residual: torch.Tensor, norm: Any) -> torch.Tensor:
        if self._kernels is not None:
            result: torch.Tensor = self._kernels.add_norm(update, residual, norm.weight, norm.bias, norm.eps)
            return result
        return F.layer_norm(update.add_(residual), norm.normalized_shape, norm.weight, norm.bias, norm.eps)

    def _attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, slab: Slab, *, first_only: bool
    ) -> torch.Tensor:
        if self._kernels is not None:
            mean_length = slab.num_tokens / len(slab.lengths)
            result: torch.Tensor = self._kernels.packed_attention(
                query,
                key,
                value,
                slab.starts,
                slab.lengths[0],
                mean_length,
                self._head_dim,
                self._offsets,
                first_only=first_only,
            )
            return result
        return self._attend_by_group(query, key, value, slab, first_only=first_only)

    def _attend_by_group(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, slab: Slab, *, first_only: bool
    ) -> torch.Tensor:
        """Attention over the rows of one length at a time: no padding, no mask."""
        out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        if self._width == 0:
            return out
        token = 0
        for row, count, length in slab.groups:
            end = token + count * length
            asked = slice(row, row + count) if first_only else slice(token, end)
            bias = None if self._bias is None else self._bias[:, : 1 if first_only else length, :length]
            mixed = F.scaled_dot_product_attention(
                self._heads(query[asked], count),
                self._heads(key[token:end], count),
                self._heads(value[token:end], count),
                bias,
            )  # (count, heads, queries, head_dim)
            out[asked] = mixed.transpose(1, 2).reshape(-1, self._width)
            token = end
        return out

    def _heads(self, projected: torch.Tensor, rows: int) -> torch.Tensor:
        """(rows * length, heads * head_dim) -> (rows, heads, length, head_dim)."""
        length = projected.shape[0] // rows
        return projected.view(rows, length, self._width // self._head_dim, self._head_dim).transpose(1, 2)


def layer_bias(encoder: Encoder, layer: int, shared: torch.Tensor | None) -> torch.Tensor | None:
    """The columns of the shared bias (1, num_heads, longest, longest) for the heads a layer still has."""
    return None if shared is None else shared[0, list(encoder.present(layer))]


def _by_offset(bias: torch.Tensor) -> torch.Tensor:
    """(heads, longest, longest), a function of key minus query position alone -> (heads, 2 * longest - 1), in float32."""
    backward = bias[:, 1:, 0].flip(1)  # key before query: offsets -(longest - 1) .. -1
    return torch.cat([backward, bias[:, 0]], dim=1).float().contiguous()


def _is_gelu(activation: Any) -> bool:
    """Whether an activation is GELU, by what it does rather than by what it is called."""
    probe = torch.linspace(-4, 4, 41)
    return torch.allclose(activation(probe), F.gelu(probe), atol=1e-6)
