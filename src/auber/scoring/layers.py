"""One encoder layer on packed tokens: what the model computes in eval mode, and nothing else.

Query, key and value are one matrix product. On a GPU attention and the residual norms are our own
kernels, and in bfloat16 GELU is the epilogue of the feed-forward's first matrix product. That GELU
is the tanh form; its distance from the exact form (at most 5e-4) is below the rounding of bfloat16.
In float32 everything is exact on any device. The attention kernel cannot compute scores that depend
on content and position together (DeBERTa's). There, as on a CPU, attention runs by groups of
equally long rows.

A mask weights the columns that a matrix reads: the heads' contexts before the output projection,
the neurons' activations before the contracting matrix.
"""

from __future__ import annotations

import logging
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

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

    @property
    def mixes_tokens(self) -> bool:
        """Whether a module after the layer mixes neighbouring tokens, given the layer's input."""
        return self._between is not None

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
        self,
        context: torch.Tensor,
        hidden: torch.Tensor,
        batch: PackedBatch,
        heads: torch.Tensor | None = None,  # weights (masks, present_heads * head_dim)
        neurons: torch.Tensor | None = None,  # weights (masks, present_neurons)
    ) -> torch.Tensor:
        """Return the input of the next layer from `context` and the layer's own input.

        Both may be of first tokens only, unless a module between the layers mixes tokens.
        """
        return self.contract(*self.expand(context, hidden, heads), hidden, batch, neurons)

    def expand(
        self, context: torch.Tensor, hidden: torch.Tensor, heads: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the neurons' activations (tokens, present_neurons), and what is added to them."""
        parts = self._parts
        update = _weighted(parts.output, context, heads, len(hidden))
        attended = self._add_norm(update, hidden, parts.attention_norm)
        if self._gelu_epilogue:
            bias, weight = parts.expand.bias, parts.expand.weight
            return torch._addmm_activation(bias, attended, weight.t(), use_gelu=True), attended
        return parts.activation(parts.expand(attended)), attended

    def contract(
        self,
        activations: torch.Tensor,
        attended: torch.Tensor,
        hidden: torch.Tensor | None,  # the layer's input, if the layer `mixes_tokens`
        batch: PackedBatch,
        neurons: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the input of the next layer from the results of `expand`."""
        update = _weighted(self._parts.contract, activations, neurons, len(attended))
        output = self._add_feed_forward(update, attended)
        if self._between is None:
            return output
        assert hidden is not None
        mixed = map(self._between, batch.blocks(hidden), batch.blocks(output))
        return batch.join(list(mixed))

    def _add_feed_forward(self, update: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        return self._add_norm(update, attended, self._parts.output_norm)

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

    def expand(
        self, context: torch.Tensor, hidden: torch.Tensor, heads: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the neurons' activations (tokens, present_neurons), and what is added to them."""
        parts = self._parts
        attended = _weighted(parts.output, context, heads, len(hidden)).add_(hidden)
        expanded = parts.expand(parts.output_norm(attended))
        if not parts.is_gated:
            return parts.activation(expanded), attended
        activated, gate = expanded.chunk(2, dim=-1)
        return parts.activation(activated) * gate, attended

    def _add_feed_forward(self, update: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        output = update.add_(attended)
        return output if self._final_norm is None else self._final_norm(output)


def pack_layers(encoder: Encoder, longest: int, kernels: Any) -> list[PackedLayer]:
    """Return all layers of a model, for rows of at most `longest` tokens."""
    packed: list[PackedLayer] = []
    for layer, attention in enumerate(encoder.attentions(longest)):
        layer_class = PreNormLayer if encoder.parts(layer).normalises_first else PackedLayer
        packed.append(layer_class(encoder, layer, attention, kernels))
    return packed


def _weighted(
    linear: nn.Linear, inputs: torch.Tensor, weights: torch.Tensor | None, tokens: int
) -> torch.Tensor:
    """Apply a linear to weighted columns: (tokens, out_features), the tokens of all masks.

    `inputs` has the tokens of all masks, or one copy for all. `weights` is (masks, columns).
    """
    if weights is None:
        output: torch.Tensor = linear(inputs)
        return output
    if len(weights) == 1:  # the same products, and the matrix is smaller than what it reads
        return F.linear(inputs, linear.weight * weights, linear.bias)
    of_mask = tokens // len(weights)
    copies = inputs.view(len(inputs) // of_mask, of_mask, inputs.shape[1])
    return F.linear((copies * weights[:, None]).flatten(0, 1), linear.weight, linear.bias)


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
