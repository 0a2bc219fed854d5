"""The adapter of an encoder family: where a layer's parts are, and its forward pass in pieces.

An `Encoder` wraps a live transformers model and never copies a weight. `layer`, `head` and `neuron`
count from 0 and refer to the unpruned model; a *position* counts the units that a layer still has.
The removed units are recorded in `model.config`, so that they travel with the checkpoint. The
widths of the layers must agree with them.

In the config, `auber_removed_heads` and `auber_removed_neurons` list the units. If all layers have
the same number of neurons, `intermediate_size` is that number, as in any other model; otherwise it
remains the unpruned one and `auber_intermediate_sizes` has the width of each layer.

The pieces `embed`, `attentions`, `between` and `classify` describe what the model computes in eval
mode around and inside its layers. With `parts` they are all that a search needs to reuse what a
mask does not change. The classifier is that of the model's class, one of `task_types.TASK_TYPES`;
for an encoder without one it is the pooling that makes a vector of a row (`models.pooling`).
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from auber.data.task_types import TASK_TYPES, TaskType, task_type_of_class
from auber.errors import ModelError
from auber.models.encoders.attention import Attention
from auber.models.plan import PruningPlan, heads_to_json, kept_units, neurons_to_json
from auber.models.pooling import pooling_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Keys in config.json
REMOVED_HEADS = "auber_removed_heads"
REMOVED_NEURONS = "auber_removed_neurons"
INTERMEDIATE_SIZES = "auber_intermediate_sizes"

# A row's first token, the mean or the maximum of its tokens, or each of them.
Reads = Literal["first", "mean", "max", "all"]


@dataclass(frozen=True)
class FusedProjection:
    """A third of a Linear that computes query, key and value; its weight is a view of the model."""

    fused: nn.Linear  # hidden -> 3 * present_heads * head_dim: all queries, all keys, all values
    third: int

    @property
    def out_features(self) -> int:
        """The width of this third."""
        return self.fused.out_features // 3

    @property
    def weight(self) -> Tensor:
        """A view (present_heads * head_dim, hidden)."""
        return self._view(self.fused.weight)

    @property
    def bias(self) -> Tensor | None:
        """A view (present_heads * head_dim,), or None without a bias."""
        return None if self.fused.bias is None else self._view(self.fused.bias)

    def __call__(self, hidden: Tensor) -> Tensor:
        """Project (..., hidden) to (..., present_heads * head_dim)."""
        return F.linear(hidden, self.weight, self.bias)

    def _view(self, parameter: Tensor) -> Tensor:
        return parameter.narrow(0, self.third * self.out_features, self.out_features)


Projection = nn.Linear | FusedProjection


@dataclass(frozen=True)
class LayerParts:
    """The live modules of one layer."""

    query: Projection  # hidden -> present_heads * head_dim, as are key and value
    key: Projection
    value: Projection
    output: nn.Linear  # present_heads * head_dim -> hidden
    attention_norm: nn.Module
    expand: nn.Linear  # hidden -> intermediate, or twice that if gated
    activation: Callable[[Tensor], Tensor]
    contract: nn.Linear  # intermediate -> hidden
    output_norm: nn.Module
    # Further projections with rows for each head, of relative positions.
    positional: tuple[nn.Linear, ...] = ()
    # The norms come before attention and feed-forward, not after the residual sums.
    normalises_first: bool = False
    is_gated: bool = False  # the feed-forward is activation(first half of expand) * second half

    @property
    def projections(self) -> tuple[Projection, ...]:
        """All projections whose rows belong to heads."""
        return (self.query, self.key, self.value, *self.positional)

    def attention_input(self, hidden: Tensor) -> Tensor:
        """Return what query, key and value read, from the layer's input (..., hidden)."""
        normed: Tensor = self.attention_norm(hidden) if self.normalises_first else hidden
        return normed


class Encoder(ABC):
    """The adapter of one family around a live bare model or classifier."""

    family: ClassVar[str]
    model_types: ClassVar[tuple[str, ...]]  # config.model_type of the models it adapts
    has_token_types: bool = True
    intermediate_key: ClassVar[str] = "intermediate_size"  # in the config

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.base: Any = model.base_model
        config = model.config
        self.num_layers: int = config.num_hidden_layers
        self.num_heads: int = config.num_attention_heads
        self.hidden_size: int = config.hidden_size
        self.head_dim: int = self.hidden_size // self.num_heads
        if getattr(config, "is_decoder", False):
            raise ModelError(
                f"{type(model).__name__} is configured as a decoder (is_decoder); "
                "only encoders can be pruned"
            )
        try:
            for layer in range(self.num_layers):
                self._check_layer(layer)
        except AttributeError as error:
            raise ModelError(
                f"{type(model).__name__}: its attention or feed-forward is not that of a "
                f"{self.family} in transformers ({error}); only those can be pruned"
            ) from error

    @abstractmethod
    def parts(self, layer: int) -> LayerParts:
        """Return the modules of a layer."""

    @property
    def removed(self) -> PruningPlan:
        """The units that were removed."""
        return removed_units(self.model.config)

    @removed.setter
    def removed(self, plan: PruningPlan) -> None:
        config = self.model.config
        setattr(config, REMOVED_HEADS, heads_to_json(plan.heads))
        for key in (REMOVED_NEURONS, INTERMEDIATE_SIZES):
            if hasattr(config, key):
                delattr(config, key)
        if plan.neurons:
            setattr(config, REMOVED_NEURONS, neurons_to_json(plan.neurons))
            widths = [self.parts(layer).contract.in_features for layer in range(self.num_layers)]
            if len(set(widths)) == 1:
                setattr(config, self.intermediate_key, widths[0])
            else:
                setattr(config, self.intermediate_key, widths[0] + len(plan.neurons.get(0, ())))
                setattr(config, INTERMEDIATE_SIZES, widths)

    def unpruned_config(self) -> Any:
        """Return the config of the model before any unit was removed."""
        config = copy.deepcopy(self.model.config)
        for key in (REMOVED_HEADS, REMOVED_NEURONS, INTERMEDIATE_SIZES, "auto_map"):
            if hasattr(config, key):
                delattr(config, key)
        setattr(config, self.intermediate_key, self.num_neurons)
        return config

    @property
    def num_neurons(self) -> int:
        """The neurons of each layer of the unpruned model."""
        removed = removed_units(self.model.config, [REMOVED_NEURONS])
        width: int = self.parts(0).contract.in_features
        return width + len(removed.neurons.get(0, ()))

    def head_cost(self, length: int) -> int:
        """Return the multiply-adds per token of a head, in rows of `length` tokens."""
        return self.head_dim * (4 * self.hidden_size + 2 * length)

    @property
    def neuron_cost(self) -> int:
        """The multiply-adds per token of a neuron."""
        return self.hidden_size * (3 if self.parts(0).is_gated else 2)

    @property
    def most_tokens(self) -> int | None:
        """The largest number of tokens that the model can read; None if positions are relative."""
        table = getattr(self.base.embeddings, "position_embeddings", None)
        if table is None:
            return None
        # RoBERTa and similar models count from the position after the padding token's.
        skipped = 0 if table.padding_idx is None else table.padding_idx + 1
        return int(table.num_embeddings - skipped)

    @property
    def num_positions(self) -> int:
        """The largest number of tokens in a row that the model was made for."""
        return self.most_tokens or int(self.model.config.max_position_embeddings)

    def present(self, layer: int) -> tuple[int, ...]:
        """Return the heads a layer still has, in order."""
        removed = removed_units(self.model.config, [REMOVED_HEADS])
        return kept_units(self.num_heads, removed.heads.get(layer, ()))

    def present_neurons(self, layer: int) -> tuple[int, ...]:
        """Return the neurons a layer still has, in order."""
        return kept_units(self.num_neurons, self.removed.neurons.get(layer, ()))

    def features(self, positions: Sequence[int]) -> Tensor:
        """Return the rows of query, key and value that belong to the heads at these positions."""
        starts = torch.tensor(positions, dtype=torch.long)[:, None] * self.head_dim
        features: Tensor = (starts + torch.arange(self.head_dim)).flatten()
        return features

    def keep(self, layer: int, positions: Sequence[int]) -> None:
        """Slice a layer down to the heads at these positions; `remove` checks and records."""
        parts, features = self.parts(layer), self.features(positions)
        if isinstance(parts.query, FusedProjection):
            width = parts.query.out_features
            thirds = torch.cat([features + third * width for third in range(3)])
            _keep_rows(parts.query.fused, thirds)
        for projection in parts.projections:
            if isinstance(projection, nn.Linear):
                _keep_rows(projection, features)
        _keep_columns(parts.output, features)

    def keep_neurons(self, layer: int, positions: Sequence[int]) -> None:
        """Slice a layer down to the neurons at these positions; `remove` checks and records."""
        parts, index = self.parts(layer), torch.tensor(positions, dtype=torch.long)
        halves = 2 if parts.is_gated else 1
        width = parts.contract.in_features
        _keep_rows(parts.expand, torch.cat([index + half * width for half in range(halves)]))
        _keep_columns(parts.contract, index)

    # The forward pass in pieces. The model must be in eval mode.

    def embed(self, input_ids: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Return the first layer's input (batch, length, hidden)."""
        types = {"token_type_ids": token_type_ids} if self.has_token_types else {}
        embedded: Tensor = self.base.embeddings(input_ids=input_ids, **types)
        return embedded

    def attentions(self, longest: int) -> list[Attention]:
        """Return how each layer attends in rows of at most `longest` tokens."""
        return [Attention(self.head_dim**-0.5)] * self.num_layers

    def between(self, layer: int) -> Callable[[Tensor, Tensor], Tensor] | None:
        """Return what mixes neighbouring tokens after a layer, or None.

        It maps the layer's input and output, each (rows, length, hidden) without padding, to the
        input of the next layer.
        """
        return None

    @property
    def final_norm(self) -> nn.Module | None:
        """The norm after the last layer, if there is one."""
        return None

    @property
    def task_type(self) -> TaskType:
        """The task type of the model's class; `ModelError` if its head is of none."""
        task_type = task_type_of_class(type(self.model).__name__)
        if task_type is None:
            endings = " or ".join(f"...{each.ending}" for each in TASK_TYPES.values())
            raise ModelError(
                f"{type(self.model).__name__} has a head of another kind; load it as {endings}"
            )
        return task_type

    @property
    def reads(self) -> Reads:
        """What the classifier reads."""
        if self.task_type.name == "embeddings":
            mode = pooling_of(self.model).mode
            return "first" if mode == "cls" else mode
        return "all" if self.task_type.reads_all else self._classifier_reads

    def classify(self, read: Tensor) -> Tensor:
        """Return the logits (rows or tokens, num_labels) for what the classifier `reads`.

        An encoder without a classifier returns the vectors of rows in float32.
        """
        if self.task_type.name == "embeddings":
            return pooling_of(self.model).normalize(read.float())
        return self._classify_tokens(read) if self.reads == "all" else self._classify(read)

    @property
    def _classifier_reads(self) -> Reads:
        """What the classifier of whole rows reads."""
        return "first"

    def _classify(self, first: Tensor) -> Tensor:
        # Most classifiers select the first token themselves.
        logits: Tensor = self.model.classifier(first[:, None])
        return logits

    def _classify_tokens(self, hidden: Tensor) -> Tensor:
        last = self.model.qa_outputs if self.task_type.name == "spans" else self.model.classifier
        logits: Tensor = last(hidden)
        return logits

    def _check_layer(self, layer: int) -> None:
        parts = self.parts(layer)
        width = len(self.present(layer)) * self.head_dim
        named: list[tuple[str, Projection]] = [
            *((name, getattr(parts, name)) for name in ("query", "key", "value", "output")),
            *(("position projection", linear) for linear in parts.positional),
        ]
        for name, projection in named:
            linear = projection.fused if isinstance(projection, FusedProjection) else projection
            self._require_linear(layer, name, linear)
            found = linear.in_features if name == "output" else projection.out_features
            if found != width:
                removed = list(self.removed.heads.get(layer, ()))
                raise ModelError(
                    f"layer {layer}: with heads {removed} removed, as the model's config records, "
                    f"its {name} must be {width} wide, found {found}; load the model with "
                    "auber.load, and share no config object"
                )
        self._check_feed_forward(layer, parts)

    def _check_feed_forward(self, layer: int, parts: LayerParts) -> None:
        config = self.model.config
        sizes = getattr(config, INTERMEDIATE_SIZES, None)
        width = getattr(config, self.intermediate_key) if sizes is None else sizes[layer]
        for name, linear in (
            ("feed-forward expansion", parts.expand),
            ("feed-forward contraction", parts.contract),
        ):
            self._require_linear(layer, name, linear)
        found = (parts.contract.in_features, parts.expand.out_features // (1 + parts.is_gated))
        if found != (width, width):
            raise ModelError(
                f"layer {layer}: its feed-forward must be {width} wide, as the model's config "
                f"records, found {found[0]}; load the model with auber.load, and share no config "
                "object"
            )

    def _require_linear(self, layer: int, name: str, linear: nn.Module) -> None:
        if type(linear) is not nn.Linear:
            raise ModelError(
                f"layer {layer} of {type(self.model).__name__}: its {name} must be a plain Linear, "
                f"found {type(linear).__name__}; merge adapters and load without quantisation first"
            )


def removed_units(
    config: Any, keys: Sequence[str] = (REMOVED_HEADS, REMOVED_NEURONS)
) -> PruningPlan:
    """Return the units that a config records as removed, of all kinds or under some keys."""
    found = {key.rpartition("_")[2]: getattr(config, key, None) or {} for key in keys}
    return PruningPlan.from_json(found, "config")


def _keep_rows(linear: nn.Linear, rows: Tensor) -> None:
    linear.weight = _select(linear.weight, 0, rows)  # (rows, in_features)
    if linear.bias is not None:
        linear.bias = _select(linear.bias, 0, rows)  # (rows,)
    linear.out_features = len(rows)


def _keep_columns(linear: nn.Linear, columns: Tensor) -> None:
    linear.weight = _select(linear.weight, 1, columns)  # (out_features, columns)
    linear.in_features = len(columns)


def _select(parameter: Tensor, dim: int, index: Tensor) -> nn.Parameter:
    selected = parameter.detach().index_select(dim, index.to(parameter.device))
    return nn.Parameter(selected, requires_grad=parameter.requires_grad)
