"""MPNet: one table of relative position biases, a column a head, is shared by all layers.

The table stays whole when a layer loses heads, because other layers may still have them; the layer takes the columns of
the heads it kept. A hook on its attention does that, so the model stays an ordinary transformers model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from auber.models.encoders.attention import Attention
from auber.models.encoders.base import Encoder, LayerParts


class MPNet(Encoder):
    """MPNet."""

    family = "mpnet"
    model_types = ("mpnet",)
    has_token_types = False

    def parts(self, layer: int) -> LayerParts:
        """The modules of a layer."""
        block = self.base.encoder.layer[layer]
        attention = block.attention
        return LayerParts(
            query=attention.attn.q,
            key=attention.attn.k,
            value=attention.attn.v,
            output=attention.attn.o,
            attention_norm=attention.LayerNorm,
            expand=block.intermediate.dense,
            activation=block.intermediate.intermediate_act_fn,
            contract=block.output.dense,
            output_norm=block.output.LayerNorm,
        )

    def keep(self, layer: int, positions: Sequence[int]) -> None:
        """Slice a layer down to the heads at these positions."""
        super().keep(layer, positions)
        attention = self.base.encoder.layer[layer].attention.attn
        attention.num_attention_heads = len(positions)
        attention.all_head_size = len(positions) * self.head_dim  # its forward reshapes by this
        index = torch.tensor(positions, dtype=torch.long, device=attention.o.weight.device)
        if hasattr(attention, "present_heads"):
            attention.present_heads = attention.present_heads[index]
        else:
            attention.register_buffer("present_heads", index, persistent=False)
            attention.register_forward_pre_hook(_take_present_columns, with_kwargs=True)

    def attentions(self, longest: int) -> list[Attention]:
        """Each layer adds its heads' columns of the table, by relative position."""
        table = self.base.encoder.relative_attention_bias.weight
        bias: Tensor = self.base.encoder.compute_position_bias(
            torch.empty(1, longest, device=table.device)
        )
        (shared,) = bias  # (num_heads, longest, longest)
        return [
            Attention(self.head_dim**-0.5, bias=shared[list(self.present(layer))])
            for layer in range(self.num_layers)
        ]


def _take_present_columns(
    attention: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Cut `position_bias`, the third argument, to the heads that are present.

    All rows of a batch have the same bias, and transformers gives a copy to each; one is cut, (1, present_heads, length,
    length), and added to all.
    """
    heads = attention.present_heads
    if "position_bias" in named:
        return arguments, {
            **named,
            "position_bias": named["position_bias"][:1].index_select(1, heads),
        }
    hidden, mask, bias, *rest = arguments
    return (hidden, mask, bias[:1].index_select(1, heads), *rest), named
