"""Removed heads put back with weights of zero: the size of the unpruned model, the function of the pruned one.

A head whose value rows, value bias and output columns are zero adds nothing, whatever it attends to. Its other
projections are zero as well, so that nothing of a removed head is left to be mistaken for something that was learned.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from auber.errors import PlanError
from auber.models.encoders import REMOVED_HEADS, encoder_of
from auber.models.encoders.base import Encoder
from auber.models.plan import PruningPlan
from auber.models.surgery import remove_heads

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def put_back(model: PreTrainedModel, heads: Mapping[int, Iterable[int]]) -> PreTrainedModel:
    """A copy of the model in which these removed heads are present again, as zeros.

    Where no removed head is left, the copy is the plain transformers model, with no trace of pruning in its config.
    """
    pruned, heads = encoder_of(model), PruningPlan(heads)
    for layer, named in heads.items():
        if present := sorted(set(named) - set(pruned.removed.removed(layer))):
            raise PlanError(
                f"layer {layer}: only a removed head can be put back, head {present[0]} is not removed"
            )
    left = PruningPlan(
        {layer: set(gone) - set(heads.removed(layer)) for layer, gone in pruned.removed.items()}
    )
    restored = _build(model, left)
    with torch.no_grad():
        weights = model.state_dict()
        for name, tensor in restored.state_dict().items():
            if tensor.shape == weights[name].shape:
                tensor.copy_(weights[name])
        for layer in heads:
            _spread(pruned, encoder_of(restored), layer)
    return restored.eval()


def _build(model: PreTrainedModel, plan: PruningPlan) -> PreTrainedModel:
    """A model of the same class and dtype without the heads of the plan alone; its weights are yet to be filled in."""
    from transformers.initialization import no_init_weights

    config = copy.deepcopy(model.config)
    if hasattr(config, REMOVED_HEADS):
        delattr(config, REMOVED_HEADS)
    with no_init_weights():
        built = type(model)._from_config(
            config, attn_implementation=model.config._attn_implementation
        )
    built.to(device=model.device, dtype=model.dtype)
    if plan:
        remove_heads(built, plan, allow_empty_layers=True)
    return built


def _spread(pruned: Encoder, restored: Encoder, layer: int) -> None:
    """Fill a layer: the weights of each head at the place it has among more heads, zeros between."""
    small, large = pruned.parts(layer), restored.parts(layer)
    places = [restored.present(layer).index(head) for head in pruned.present(layer)]
    starts = (
        torch.tensor(places, dtype=torch.long, device=large.output.weight.device) * pruned.head_dim
    )
    features = (starts[:, None] + torch.arange(pruned.head_dim, device=starts.device)).flatten()
    for source, target in zip(small.projections, large.projections, strict=True):
        _fill(target.weight, 0, features, source.weight)  # (heads * head_dim, hidden)
        if source.bias is not None and target.bias is not None:
            _fill(target.bias, 0, features, source.bias)  # (heads * head_dim,)
    _fill(large.output.weight, 1, features, small.output.weight)  # (hidden, heads * head_dim)


def _fill(target: Tensor, dim: int, features: Tensor, source: Tensor) -> None:
    target.zero_().index_copy_(dim, features, source)
