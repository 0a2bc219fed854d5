"""BERT, and the families whose layers have its layout: ELECTRA and RoBERTa."""

from __future__ import annotations

from torch import Tensor

from auber.models.encoders.base import Encoder, LayerParts


class BertLayout(Encoder):
    """A family whose layers have the module names of BERT."""

    def parts(self, layer: int) -> LayerParts:
        """Return the modules of a layer."""
        block = self.base.encoder.layer[layer]
        attention = block.attention
        return LayerParts(
            query=attention.self.query,
            key=attention.self.key,
            value=attention.self.value,
            output=attention.output.dense,
            attention_norm=attention.output.LayerNorm,
            expand=block.intermediate.dense,
            activation=block.intermediate.intermediate_act_fn,
            contract=block.output.dense,
            output_norm=block.output.LayerNorm,
        )


class Bert(BertLayout):
    """BERT: a pooler between the first token and the classifier."""

    family = "bert"
    model_types = ("bert",)

    def _classify(self, first: Tensor) -> Tensor:
        logits: Tensor = self.model.classifier(self.base.pooler(first[:, None]))
        return logits


class Electra(BertLayout):
    """ELECTRA: embeddings that may be narrower than the layers."""

    family = "electra"
    model_types = ("electra",)

    def embed(self, input_ids: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Return the first layer's input (batch, length, hidden)."""
        embedded = super().embed(input_ids, token_type_ids)  # (batch, length, embedding_size)
        if hasattr(self.base, "embeddings_project"):
            embedded = self.base.embeddings_project(embedded)
        return embedded


class Roberta(BertLayout):
    """RoBERTa, and the models that differ only in vocabulary and weights: XLM-R and CamemBERT."""

    family = "roberta"
    model_types = ("camembert", "roberta", "xlm-roberta")
