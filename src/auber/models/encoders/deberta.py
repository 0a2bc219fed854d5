"""DeBERTa-v2 and -v3: content and relative positions attend to each other, head by head.

Every head has rows in the projections of content and of relative positions. If these are shared
(`share_att_key`, as in version 3), slicing one slices the other. The table of relative positions
belongs to no head and stays whole. In the larger models of version 2, a convolution follows the
first layer; it mixes neighbouring tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from auber.models.encoders.attention import Attention, Disentangled
from auber.models.encoders.base import LayerParts
from auber.models.encoders.bert import BertLayout

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class DebertaV2(BertLayout):
    """DeBERTa-v2 and DeBERTa-v3."""

    family = "deberta-v2"
    model_types = ("deberta-v2",)
    attention_names = (
        "self.query_proj",
        "self.key_proj",
        "self.value_proj",
        "output.dense",
        "output.LayerNorm",
    )

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        self.has_token_types = model.config.type_vocab_size > 0  # version 3 has none

    def parts(self, layer: int) -> LayerParts:
        """Return the modules of a layer."""
        attention = self.base.encoder.layer[layer].attention.self
        found = (getattr(attention, name, None) for name in ("pos_key_proj", "pos_query_proj"))
        positional = tuple(linear for linear in found if linear is not None)
        return replace(super().parts(layer), positional=positional)

    def keep(self, layer: int, positions: Sequence[int]) -> None:
        """Slice a layer down to the heads at these positions."""
        from auber.models.remote_code.modeling_auber import attend_without_heads

        super().keep(layer, positions)
        attention = self.base.encoder.layer[layer].attention.self
        attention.num_attention_heads = len(positions)
        attention.all_head_size = len(positions) * self.head_dim
        if not positions:
            # Its own forward reshapes by the number of heads, which fails for 0.
            attention.forward = attend_without_heads

    def head_cost(self, length: int) -> int:
        """Return the multiply-adds per token, with the scores of relative positions."""
        config = self.model.config
        if not config.relative_attention:
            return super().head_cost(length)
        kinds = len({"c2p", "p2c"} & set(config.pos_att_type or ()))
        places = len(self.base.encoder.get_rel_embedding())
        return int(super().head_cost(length) + kinds * places * self.head_dim)

    def attentions(self, longest: int) -> list[Attention]:
        """Return how each layer attends: with its own projections of the shared positions."""
        encoder, config = self.base.encoder, self.model.config
        kinds = set(config.pos_att_type or ())
        scale = 1 / math.sqrt(self.head_dim * (1 + len(kinds & {"c2p", "p2c"})))
        if not config.relative_attention:
            return [Attention(scale)] * self.num_layers
        table = encoder.get_rel_embedding()  # (2 * span, hidden)
        span = len(table) // 2
        probe = torch.empty(1, longest, 1, device=table.device)
        distances = encoder.get_rel_pos(probe)[0]  # (longest, longest)
        places = (distances + span).clamp(0, 2 * span - 1)
        attentions = []
        for layer in range(self.num_layers):
            attention = encoder.layer[layer].attention.self
            shared = attention.share_att_key
            keys = queries = None
            if "c2p" in kinds:
                projection = attention.key_proj if shared else attention.pos_key_proj
                keys = self._by_head(projection, table)
            if "p2c" in kinds:
                projection = attention.query_proj if shared else attention.pos_query_proj
                queries = self._by_head(projection, table)
            disentangled = Disentangled.of(keys, queries, places, scale)
            attentions.append(Attention(scale, disentangled=disentangled))
        return attentions

    def between(self, layer: int) -> Callable[[Tensor, Tensor], Tensor] | None:
        """Return the convolution after the first layer, in models that have one."""
        convolution: Any = self.base.encoder.conv
        if layer != 0 or convolution is None:
            return None

        def convolve(inputs: Tensor, outputs: Tensor) -> Tensor:
            mask = torch.ones(inputs.shape[:2], device=inputs.device)
            mixed: Tensor = convolution(inputs, outputs, mask)
            return mixed

        return convolve

    def _by_head(self, linear: nn.Linear, table: Tensor) -> Tensor:
        """Project the table of relative positions to (present_heads, 2 * span, head_dim)."""
        projected: Tensor = linear(table)
        return projected.view(
            len(table), linear.out_features // self.head_dim, self.head_dim
        ).transpose(0, 1)

    def _classify(self, read: Tensor) -> Tensor:
        logits: Tensor = self.model.classifier(self.model.pooler(read[:, None]))
        return logits
