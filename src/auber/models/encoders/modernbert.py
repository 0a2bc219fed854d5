"""ModernBERT: a fused projection, rotary positions, local windows, and norms that come first.

Query, key and value are thirds of `Wqkv`; a head has rows in each of them. transformers derives the
number of heads of a layer from the width of that product, so a sliced layer needs nothing else. A
sequence classifier reads the first token or the mean over the row (`config.classifier_pooling`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from auber.models.encoders.attention import OUT_OF_REACH, Attention, Rotation
from auber.models.encoders.base import Encoder, FusedProjection, LayerParts, Reads


class ModernBert(Encoder):
    """ModernBERT."""

    family = "modernbert"
    model_types = ("modernbert",)
    has_token_types = False

    def parts(self, layer: int) -> LayerParts:
        """Return the modules of a layer."""
        block = self.base.layers[layer]
        query, key, value = (FusedProjection(block.attn.Wqkv, third) for third in range(3))
        return LayerParts(
            query=query,
            key=key,
            value=value,
            output=block.attn.Wo,
            attention_norm=block.attn_norm,
            expand=block.mlp.Wi,
            activation=block.mlp.act,
            contract=block.mlp.Wo,
            output_norm=block.mlp_norm,
            normalises_first=True,
            is_gated=True,
        )

    def attentions(self, longest: int) -> list[Attention]:
        """Return how each layer attends; all global layers attend alike, and all local ones."""
        config: Any = self.model.config
        kinds = {kind: self._attention(kind, longest) for kind in set(config.layer_types)}
        return [kinds[kind] for kind in config.layer_types]

    @property
    def final_norm(self) -> nn.Module | None:
        """The norm after the last layer."""
        norm: nn.Module = self.base.final_norm
        return norm

    @property
    def _classifier_reads(self) -> Reads:
        return "mean" if self.model.config.classifier_pooling == "mean" else "first"

    def _attention(self, kind: str, longest: int) -> Attention:
        weight = self.base.embeddings.tok_embeddings.weight
        positions = torch.arange(longest, device=weight.device)
        cosine, sine = self.base.rotary_emb(weight, positions[None], kind)  # (1, longest, head_dim)
        bias, reach = None, self.model.config.sliding_window
        if kind == "sliding_attention" and longest - 1 > reach:
            far = (positions[:, None] - positions).abs() > reach
            bias = torch.zeros(1, longest, longest, dtype=weight.dtype, device=weight.device)
            bias.masked_fill_(far, OUT_OF_REACH)
        return Attention(self.head_dim**-0.5, bias=bias, rotation=Rotation(cosine[0], sine[0]))

    def _classify(self, read: Tensor) -> Tensor:
        logits: Tensor = self.model.classifier(self.model.head(read))
        return logits

    def _classify_tokens(self, hidden: Tensor) -> Tensor:
        return self._classify(hidden)
