"""DeBERTa of the second and third version: content and relative positions attend to each other, head by head.

Every head has rows in the projections of content and of relative positions; where these are shared (`share_att_key`, as in
version 3), slicing one slices the other. The table of relative positions itself belongs to no head and stays whole.
A convolution may stand behind the first layer (the larger models of version 2); it mixes neighbouring tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from auber.models.encoders.attention import Attention, Disentangled
from auber.models.encoders.base import Encoder, LayerParts

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class DebertaV2(Encoder):
    """DeBERTa-v2 and DeBERTa-v3."""

    family = "deberta-v2"
    model_types = ("deberta-v2",)

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        self.has_token_types = model.config.type_vocab_size > 0  # version 3 has none

    def parts(self, layer: int) -> LayerParts:
        """The modules of a layer."""
        block = self.base.encoder.layer[layer]
        attention = block.attention
        positional = (
            getattr(attention.self, name, None) for name in ("pos_key_proj", "pos_query_proj")
        )
        return LayerParts(
            query=attention.self.query_proj,
            key=attention.self.key_proj,
            value=attention.self.value_proj,
            output=attention.output.dense,
            attention_norm=attention.output.LayerNorm,
            expand=block.intermediate.dense,
            activation=block.intermediate.intermediate_act_fn,
            contract=block.output.dense,
            output_norm=block.output.LayerNorm,
            positional=tuple(linear for linear in positional if linear is not None),
        )

    @property
    def num_positions(self) -> int:
        """The tokens a row may have at most: what the model was made for, where there is no table to run out."""
        return int(self.model.config.max_position_embeddings)

    @property
    def most_tokens(self) -> int | None:
        """None where positions are relative alone."""
        return self.num_positions if self.model.config.position_biased_input else None

    def keep(self, layer: int, positions: Sequence[int]) -> None:
        """Slice a layer down to the heads at these positions."""
        super().keep(layer, positions)
        attention = self.base.encoder.layer[layer].attention.self
        attention.num_attention_heads = len(positions)
        attention.all_head_size = len(positions) * self.head_dim
        if not positions:
            attention.forward = _attend_without_heads  # its own reshapes by the number of heads, which 0 cannot serve

    def attentions(self, longest: int) -> list[Attention]:
        """Each layer's own projections of the shared relative positions."""
        encoder, config = self.base.encoder, self.model.config
        kinds = set(config.pos_att_type or ())
        scale = 1 / math.sqrt(self.head_dim * (1 + len(kinds & {"c2p", "p2c"})))
        if not config.relative_attention:
            return [Attention(scale)] * self.num_layers
        table = encoder.get_rel_embedding()  # (2 * span, hidden)
        span = len(table) // 2
        distances = encoder.get_rel_pos(torch.empty(1, longest, 1, device=table.device))[
            0
        ]  # (longest, longest)
        places = (distances + span).clamp(0, 2 * span - 1)
        attentions = []
        for layer in range(self.num_layers):
            attention = encoder.layer[layer].attention.self
            shared = attention.share_att_key
            keys = queries = None
            if "c2p" in kinds:
                keys = self._by_head(
                    attention.key_proj if shared else attention.pos_key_proj, table
                )
            if "p2c" in kinds:
                queries = self._by_head(
                    attention.query_proj if shared else attention.pos_query_proj, table
                )
            attentions.append(
                Attention(scale, disentangled=Disentangled.of(keys, queries, places, scale))
            )
        return attentions

    def between(self, layer: int) -> Callable[[Tensor, Tensor], Tensor] | None:
        """The convolution behind the first layer, in models that have one."""
        convolution: Any = self.base.encoder.conv
        if layer != 0 or convolution is None:
            return None

        def convolve(inputs: Tensor, outputs: Tensor) -> Tensor:
            mixed: Tensor = convolution(
                inputs, outputs, torch.ones(inputs.shape[:2], device=inputs.device)
            )
            return mixed

        return convolve

    def _by_head(self, linear: nn.Linear, table: Tensor) -> Tensor:
        """The table of relative positions, projected: (present_heads, 2 * span, head_dim)."""
        projected: Tensor = linear(table)
        return projected.view(
            len(table), linear.out_features // self.head_dim, self.head_dim
        ).transpose(0, 1)

    def _classify(self, read: Tensor) -> Tensor:
        logits: Tensor = self.model.classifier(self.model.pooler(read[:, None]))
        return logits


def _attend_without_heads(
    hidden_states: Tensor,
    attention_mask: Tensor,
    output_attentions: bool = False,
    **_positions: Any,
) -> tuple[Tensor, Tensor | None]:
    """What the self-attention of a layer without heads gives: contexts (rows, length, 0) and weights of no head."""
    rows, length, _ = hidden_states.shape
    weights = hidden_states.new_empty(rows, 0, length, length) if output_attentions else None
    return hidden_states.new_empty(rows, length, 0), weights
