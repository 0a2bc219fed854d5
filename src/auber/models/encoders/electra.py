"""ELECTRA: BERT's layers on embeddings that may be narrower than the layers."""

from __future__ import annotations

from torch import Tensor

from auber.models.encoders.bert import BertLayout


class Electra(BertLayout):
    """ELECTRA."""

    family = "electra"
    model_types = ("electra",)

    def embed(self, input_ids: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """The first layer's input (batch, length, hidden)."""
        embedded = super().embed(input_ids, token_type_ids)  # (batch, length, embedding_size)
        if hasattr(self.base, "embeddings_project"):
            embedded = self.base.embeddings_project(embedded)
        return embedded
