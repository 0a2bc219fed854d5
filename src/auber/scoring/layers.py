"""One encoder layer on packed tokens: what the model computes in eval mode, and nothing else.

Query, key and value are one matrix product. On a GPU attention and the residual norms are our own
kernels, and in bfloat16 GELU is the epilogue of the feed-forward's first matrix product. That GELU
is the tanh form; its distance from the exact form (at most 5e-4) is below the rounding of bfloat16.
In float32 everything is exact on any device. The attention kernel cannot compute scores that depend
on content and position together (DeBERTa's). There, as on a CPU, attention runs by groups of
equally long rows.
"""

from __future__ import annotations

import logging
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F

from auber.models.encoders.attention import Attention
from auber.models.encoders.base import Encoder
from auber.scoring.packing import PackedBatch

logger = logging.getLogger(__name__)


def load_kernels(device: torch.device) -> ModuleType | None:
    """Return the GPU kernels, None without a CUDA device."""
    if device.type != "cuda":
        return None
    try:
        from auber.scoring import kernels
    except ImportError as error:
        logger.warning("scoring without its GPU kernels, several times slower: %s", error)
        return None
    return kernels


class PackedLayer:
    """A layer's weights, arranged for packed tokens.

    The model must be in the scorer's dtype and on its device. This class normalises after the
    residual sums, as BERT does.
    """

    def __init__(self, encoder: Encoder, layer: int, attention: Attention, kernels: Any) -> None:
        parts = encoder.parts(layer)
        projections = (parts.query, parts.key, parts.value)
        self._projection = torch.cat([each.weight for each in projections])  # (3 * width, hidden)
        biases = [linear.bias for linear in projections if linear.bias is not None]
        self._projection_bias = torch.cat(biases) if biases else None  # (3 * width,)
        self._parts = parts
        self._attention = attention
        self._between = encoder.between(layer)
        self._head_dim = encoder.head_dim
        self._width = parts.query.out_features  # present_heads * head_dim
        fits = kernels is not None and encoder.head_dim in kernels.HEAD_DIMS and self._width > 0
        self._kernels = kernels if fits else None
        self._attends_by_kernel = fits and attention.disentangled is None
        num_heads = self._width // self._head_dim
        self._offsets: torch.Tensor | None = None
        if fits and attention.bias is not None:
            self._offsets = _by_offset(attention.bias, num_heads)
        self._gelu_epilogue = (
            fits and parts.expand.weight.dtype == torch.bfloat16 and _is_gelu(parts.activation)
        )

    @property
    def forms_scores(self) -> bool:
        """Whether attention stores a number for each pair of tokens of a row."""
        return self._attention.disentangled is not None

    def context(self, hidden: torch.Tensor, batch: PackedBatch) -> torch.Tensor:
        """Return the input of the output projection: (tokens, present_heads * head_dim)."""
        states = self._parts.attention_input(hidden)
        projected = F.linear(states, self._projection, self._projection_bias)  # (tokens, 3 * width)
        query, key, value = (
            projected.narrow(1, part * self._width, self._width) for part in range(3)
        )
        return self._attend(query, key, value, batch, first_only=False)

    def first_context(self, hidden: torch.Tensor, batch: PackedBatch) -> torch.Tensor:
        """Return the context of each row's first token: (rows, present_heads * head_dim)."""
        width, weight, bias = self._width, self._projection, self._projection_bias
        query_bias, rest_bias = (None, None) if bias is None else (bias[:width], bias[width:])
        states = self._parts.attention_input(hidden)
        query = F.linear(states[batch.firsts], weight[:width], query_bias)
        rest = F.linear(states, weight[width:], rest_bias)  # (tokens, 2 * width)
        key, value = rest.narrow(1, 0, width), rest.narrow(1, width, width)
        return self._attend(query, key, value, batch, first_only=True)

    def finish(
        self, context: torch.Tensor, hidden: torch.Tensor, batch: PackedBatch
    ) -> torch.Tensor:
        """Return the input of the next layer from `context` and the layer's own input.

        Both may be of first tokens only, unless a module between the layers mixes tokens.
        """
        output = self._finish(context, hidden)
        if self._between is None:
            return output
        mixed = map(self._between, batch.blocks(hidden), batch.blocks(output))
        return batch.join(list(mixed))

    def _finish(self, context: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        parts = self._parts
        attended = self._add_norm(parts.output(context), hidden, parts.attention_norm)
        if self._gelu_epilogue:
            expanded = torch._addmm_activation(
                parts.expand.bias, attended, parts.expand.weight.t(), use_gelu=True
            )
        else:
            expanded = parts.activation(parts.expand(attended))
        return self._add_norm(parts.contract(expanded), attended, parts.output_norm)

    def _add_norm(self, update: torch.Tensor, residual: torch.Tensor, norm: Any) -> torch.Tensor:
        weight, bias = norm.weight, norm.bias
        if self._kernels is not None:
            result: torch.Tensor = self._kernels.add_norm(update, residual, weight, bias, norm.eps)
            return result
        return F.layer_norm(update.add_(residual), norm.normalized_shape, weight, bias, norm.eps)

    def _attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        batch: PackedBatch,
        *,
        first_only: bool,
    ) -> torch.Tensor:
        if self._width == 0:
            return torch.empty(query.shape, dtype=query.dtype, device=query.device)
        if self._attention.rotation is not None:
            positions = batch.positions
            query = self._rotate(query, positions[batch.firsts] if first_only else positions)
            key = self._rotate(key, positions)
            value = value.contiguous()  # the kernel uses the same strides for keys and values
        if self._attends_by_kernel and self._kernels is not None:
            mean_length = batch.num_tokens / len(batch.lengths)
            result: torch.Tensor = self._kernels.packed_attention(
                query,
                key,
                value,
                batch.starts,
                batch.lengths[0],
                mean_length,
                self._head_dim,
                self._attention.scale,
                self._offsets,
                first_only=first_only,
            )
            return result
        return self._attend_by_group(query, key, value, batch, first_only=first_only)

    def _attend_by_group(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        batch: PackedBatch,
        *,
        first_only: bool,
    ) -> torch.Tensor:
        """Attend within the rows of one length at a time: no padding, no mask."""
        query_blocks = batch.blocks(query, first_only=first_only)
        contexts = []
        for blocks in zip(query_blocks, batch.blocks(key), batch.blocks(value), strict=True):
            queries, keys, values = map(self._heads, blocks)
            added = self._attention.added(queries, keys)
            heads = F.scaled_dot_product_attention(
                queries, keys, values, added, scale=self._attention.scale
            )
            contexts.append(heads.transpose(1, 2).flatten(2))  # (rows, queries, heads * head_dim)
        return batch.join(contexts)

    def _heads(self, block: torch.Tensor) -> torch.Tensor:
        """(rows, length, heads * head_dim) -> (rows, heads, length, head_dim)."""
        rows, length, width = block.shape
        return block.view(rows, length, width // self._head_dim, self._head_dim).transpose(1, 2)

    def _rotate(self, projected: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Rotate queries or keys (tokens, heads * head_dim) by their positions (tokens,)."""
        assert self._attention.rotation is not None
        by_head = projected.view(len(projected), -1, self._head_dim)
        heads = by_head.transpose(0, 1)  # (heads, tokens, head_dim)
        return self._attention.rotation(heads, positions).transpose(0, 1).flatten(1)


class PreNormLayer(PackedLayer):
    """A layer that normalises before attention and a possibly gated feed-forward (ModernBERT)."""

    def __init__(self, encoder: Encoder, layer: int, attention: Attention, kernels: Any) -> None:
        super().__init__(encoder, layer, attention, kernels)
        self._final_norm = encoder.final_norm if layer == encoder.num_layers - 1 else None

    def _finish(self, context: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        parts = self._parts
        attended = hidden + parts.output(context)
        expanded = parts.expand(parts.output_norm(attended))
        if parts.is_gated:
            activated, gate = expanded.chunk(2, dim=-1)
            expanded = parts.activation(activated) * gate
        else:
            expanded = parts.activation(expanded)
        output: torch.Tensor = attended.add_(parts.contract(expanded))
        return output if self._final_norm is None else self._final_norm(output)


def pack_layers(encoder: Encoder, longest: int, kernels: Any) -> list[PackedLayer]:
    """Return all layers of a model, for rows of at most `longest` tokens."""
    packed: list[PackedLayer] = []
    for layer, attention in enumerate(encoder.attentions(longest)):
        layer_class = PreNormLayer if encoder.parts(layer).normalises_first else PackedLayer
        packed.append(layer_class(encoder, layer, attention, kernels))
    return packed


def _by_offset(bias: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Return a bias by key position minus query position.

    (heads or 1, longest, longest) -> (heads, 2 * longest - 1), float32
    """
    backward = bias[:, 1:, 0].flip(1)  # key before query: offsets -(longest - 1) .. -1
    return torch.cat([backward, bias[:, 0]], dim=1).float().expand(num_heads, -1).contiguous()


def _is_gelu(activation: Any) -> bool:
    """Return whether an activation computes GELU, whatever its name."""
    probe = torch.linspace(-4, 4, 41)
    return torch.allclose(activation(probe), F.gelu(probe), atol=1e-6)
