"""MPNet: all layers share one table of relative position biases, with a column per head.

The table stays whole when a layer loses heads, because other layers may still have them. A hook on
the layer's attention takes the columns of its heads, so the model stays a plain transformers model.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from auber.models.encoders.attention import Attention
from auber.models.encoders.bert import BertLayout


class MPNet(BertLayout):
    """MPNet."""

    family = "mpnet"
    model_types = ("mpnet",)
    has_token_types = False
    attention_names = ("attn.q", "attn.k", "attn.v", "attn.o", "LayerNorm")

    def keep(self, layer: int, positions: Sequence[int]) -> None:
        """Slice a layer down to the heads at these positions."""
        from auber.models.remote_code.modeling_auber import share_bias

        super().keep(layer, positions)
        attention = self.base.encoder.layer[layer].attention.attn
        attention.num_attention_heads = len(positions)
        attention.all_head_size = len(positions) * self.head_dim  # its forward reshapes by this
        index = torch.tensor(positions, dtype=torch.long, device=attention.o.weight.device)
        if hasattr(attention, "present_heads"):
            attention.present_heads = attention.present_heads[index]
        else:
            share_bias(attention, index)

    def attentions(self, longest: int) -> list[Attention]:
        """Return how each layer attends: with the table's columns of its heads as a bias."""
        table = self.base.encoder.relative_attention_bias.weight
        bias: Tensor = self.base.encoder.compute_position_bias(
            torch.empty(1, longest, device=table.device)
        )
        (shared,) = bias  # (num_heads, longest, longest)
        return [
            Attention(self.head_dim**-0.5, bias=shared[list(self.present(layer))])
            for layer in range(self.num_layers)
        ]
