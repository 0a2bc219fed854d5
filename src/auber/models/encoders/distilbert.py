"""DistilBERT: the computation of BERT under other names, without token types and pooler."""

from __future__ import annotations

import torch
from torch import Tensor

from auber.models.encoders.base import Encoder, LayerParts


class DistilBert(Encoder):
    """DistilBERT."""

    family = "distilbert"
    model_types = ("distilbert",)
    has_token_types = False
    intermediate_key = "hidden_dim"

    def parts(self, layer: int) -> LayerParts:
        """Return the modules of a layer."""
        block = self.base.transformer.layer[layer]
        return LayerParts(
            query=block.attention.q_lin,
            key=block.attention.k_lin,
            value=block.attention.v_lin,
            output=block.attention.out_lin,
            attention_norm=block.sa_layer_norm,
            expand=block.ffn.lin1,
            activation=block.ffn.activation,
            contract=block.ffn.lin2,
            output_norm=block.output_layer_norm,
        )

    def _classify(self, first: Tensor) -> Tensor:
        logits: Tensor = self.model.classifier(torch.relu(self.model.pre_classifier(first)))
        return logits
