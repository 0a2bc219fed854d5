"""The adapter every encoder family implements: where its parts live, and its forward pass in pieces.

An `Encoder` wraps a live transformers model and never copies a weight. `layer` and `head` count from 0 and mean the
unpruned model; a *position* counts the heads that are still present in a layer. The heads that are gone are recorded in
`model.config.auber_removed_heads`, so they travel with the checkpoint, and the widths of the layers must agree.

The pieces `embed`, `attention_bias` and `classify` compute what the model computes in eval mode around its layers; with
`parts` they are all that a search needs to keep what a mask does not change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from auber.errors import ModelError
from auber.plan import PruningPlan

if TYPE_CHECKING:
    from transformers import PreTrainedModel

REMOVED_HEADS = "auber_removed_heads"  # the key in config.json


@dataclass(frozen=True)
class LayerParts:
    """The live modules of one layer that normalises after each residual sum."""

    query: nn.Linear  # hidden -> present_heads * head_dim; key and value alike
    key: nn.Linear
    value: nn.Linear
    output: nn.Linear  # present_heads * head_dim -> hidden
    attention_norm: nn.Module
    expand: nn.Linear  # hidden -> intermediate
    activation: Callable[[Tensor], Tensor]
    contract: nn.Linear  # intermediate -> hidden
    output_norm: nn.Module


class Encoder(ABC):
    """One family's view of a live model: `XModel` or the same with a head on top, such as `XForSequenceClassification`."""

    family: ClassVar[str]
    model_types: ClassVar[tuple[str, ...]]  # config.model_type of the models it adapts
    has_token_types: ClassVar[bool] = True

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.base: Any = model.base_model
        config = model.config
        self.num_layers: int = config.num_hidden_layers
        self.num_heads: int = config.num_attention_heads
        self.hidden_size: int = config.hidden_size
        self.head_dim = self.hidden_size // self.num_heads
        if getattr(config, "is_decoder", False):
            raise ModelError(
                f"{type(model).__name__} is configured as a decoder (is_decoder); only encoders can be pruned"
            )
        for layer in range(self.num_layers):
            self._check_layer(layer)

    @abstractmethod
    def parts(self, layer: int) -> LayerParts:
        """The modules of a layer."""

    @property
    def removed(self) -> PruningPlan:
        """The heads that are gone."""
        return PruningPlan.from_json(getattr(self.model.config, REMOVED_HEADS, None) or {}, f"config.{REMOVED_HEADS}")

    @removed.setter
    def removed(self, plan: PruningPlan) -> None:
        setattr(self.model.config, REMOVED_HEADS, plan.to_json())

    def present(self, layer: int) -> tuple[int, ...]:
        """The heads a layer still has, in order."""
        return self.removed.kept(layer, self.num_heads)

    def keep(self, layer: int, positions: Sequence[int]) -> None:
        """Slice a layer down to the heads at these positions. `surgery.remove_heads` validates and records."""
        parts = self.parts(layer)
        starts = torch.tensor(positions, dtype=torch.long, device=parts.query.weight.device) * self.head_dim
        features = (starts[:, None] + torch.arange(self.head_dim, device=starts.device)).flatten()
        for linear in (parts.query, parts.key, parts.value):
            linear.weight = _select(linear.weight, 0, features)  # (kept_heads * head_dim, hidden)
            if linear.bias is not None:
                linear.bias = _select(linear.bias, 0, features)  # (kept_heads * head_dim,)
            linear.out_features = len(features)
        parts.output.weight = _select(parts.output.weight, 1, features)  # (hidden, kept_heads * head_dim)
        parts.output.in_features = len(features)

    # The forward pass in pieces; the model must be in eval mode.

    def embed(self, input_ids: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """The first layer's input (batch, length, hidden)."""
        types = {"token_type_ids": token_type_ids} if self.has_token_types else {}
        embedded: Tensor = self.base.embeddings(input_ids=input_ids, **types)
        return embedded

    def attention_bias(self, length: int) -> Tensor | None:
        """What is added to the attention scores of every layer, (1, num_heads, length, length), or None."""
        return None

    def classify(self, first: Tensor) -> Tensor:
        """The logits (batch, num_labels) from the last layer's output for the first token (batch, hidden)."""
        if not type(self.model).__name__.endswith("ForSequenceClassification"):
            raise ModelError(
                f"{type(self.model).__name__} has no sequence classifier; load the model as ...ForSequenceClassification"
            )
        return self._classify(first)

    def _classify(self, first: Tensor) -> Tensor:
        logits: Tensor = self.model.classifier(first[:, None])  # most heads read the first token themselves
        return logits

    def _present_columns(self, layer: int, bias: Tensor) -> Tensor:
        """The part of `attention_bias` a layer uses, (1, present_heads, length, length)."""
        return bias

    def _check_layer(self, layer: int) -> None:
        parts = self.parts(layer)
        width = len(self.present(layer)) * self.head_dim
        for name in ("query", "key", "value", "output"):
            linear = getattr(parts, name)
            if type(linear) is not nn.Linear:
                raise ModelError(
                    f"layer {layer}: its {name} must be a plain Linear, found {type(linear).__name__}; "
                    "merge adapters and load without quantisation first"
                )
            found = linear.in_features if name == "output" else linear.out_features
            if found != width:
                raise ModelError(
                    f"layer {layer}: with heads {list(self.removed.removed(layer))} removed, as the model's config records, its "
                    f"{name} must be {width} wide, found {found}; load the model with auber.load, and share no config object"
                )


def _select(parameter: Tensor, dim: int, features: Tensor) -> nn.Parameter:
    return nn.Parameter(parameter.detach().index_select(dim, features), requires_grad=parameter.requires_grad)
