"""BERT, and the families with the same layout of layers: ELECTRA and RoBERTa."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from auber.models.encoders.base import Encoder, LayerParts


class BertLayout(Encoder):
    """A family whose layers are laid out as in BERT."""

    # Within a layer's attention: query, key, value, output and norm.
    attention_names: ClassVar[tuple[str, ...]] = (
        "self.query",
        "self.key",
        "self.value",
        "output.dense",
        "output.LayerNorm",
    )

    def parts(self, layer: int) -> LayerParts:
        """Return the modules of a layer."""
        block = self.base.encoder.layer[layer]
        query, key, value, output, norm = map(block.attention.get_submodule, self.attention_names)
        return LayerParts(
            query=query,
            key=key,
            value=value,
            output=output,
            attention_norm=norm,
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
