"""BERT, and the layout of modules that several families took over from it."""

from __future__ import annotations

from torch import Tensor

from auber.models.encoders.base import Encoder, LayerParts


class BertLayout(Encoder):
    """A family whose layers are named as BERT's are."""

    def parts(self, layer: int) -> LayerParts:
        """The modules of a layer."""
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
    """BERT: a pooler stands between the first token and the classifier."""

    family = "bert"
    model_types = ("bert",)

    def _classify(self, first: Tensor) -> Tensor:
        logits: Tensor = self.model.classifier(self.base.pooler(first[:, None]))
        return logits
