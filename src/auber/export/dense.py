"""The target `dense`: full-size weights with zeros for removed heads, for plain transformers.

The folder holds what transformers itself would have saved. It is neither faster nor smaller than
the unpruned model, but every tool that takes a transformers folder can use it.

A head whose value rows, value bias and output columns are zero adds nothing, whatever it attends
to. Its query and key are zero too, so that nothing that looks learned is left of it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from auber.errors import PlanError
from auber.export.source import Source
from auber.export.verification import Compute, Exported, write_verified
from auber.models import checkpoint
from auber.models.encoders import REMOVED_HEADS, Encoder, encoder_of
from auber.models.plan import PruningPlan
from auber.models.surgery import remove_heads
from auber.system.progress import Progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def export(source: Source, place: Path, progress: Progress) -> Exported:
    """Write the folder."""
    return write_verified("dense", source, place, _write, _load, progress)


def _write(source: Source, folder: Path) -> None:
    checkpoint.save(restore_heads(source.model, source.encoder.removed), source.tokenizer, folder)


def _load(source: Source, folder: Path) -> Compute:
    """Load the folder as a user without this package does."""
    import transformers

    auto_class = getattr(transformers, source.task_type.auto_class)
    model = auto_class.from_pretrained(folder, dtype=torch.float32)
    return lambda batch: model(**batch)


def restore_heads(model: PreTrainedModel, heads: Mapping[int, Iterable[int]]) -> PreTrainedModel:
    """Return a copy of the model in which these removed heads are present again, as zeros.

    If no head remains removed, the copy is a plain transformers model without a trace of pruning.
    """
    pruned, heads = encoder_of(model), PruningPlan(heads)
    for layer, named in heads.items():
        if present := sorted(set(named) - set(pruned.removed.removed(layer))):
            raise PlanError(
                f"layer {layer}: only a removed head can be put back, "
                f"head {present[0]} is not removed"
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
            _fill_layer(pruned, encoder_of(restored), layer)
    return restored.eval()


def _build(model: PreTrainedModel, plan: PruningPlan) -> PreTrainedModel:
    """Return a model of the same class and dtype without the plan's heads, with empty weights."""
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


def _fill_layer(pruned: Encoder, restored: Encoder, layer: int) -> None:
    """Copy each head's weights to its place among more heads, with zeros between."""
    small, large = pruned.parts(layer), restored.parts(layer)
    places = [restored.present(layer).index(head) for head in pruned.present(layer)]
    features = pruned.features(places)
    for source, target in zip(small.projections, large.projections, strict=True):
        _fill(target.weight, 0, features, source.weight)  # (heads * head_dim, hidden)
        if source.bias is not None and target.bias is not None:
            _fill(target.bias, 0, features, source.bias)  # (heads * head_dim,)
    _fill(large.output.weight, 1, features, small.output.weight)  # (hidden, heads * head_dim)


def _fill(target: Tensor, dim: int, features: Tensor, source: Tensor) -> None:
    target.zero_().index_copy_(dim, features.to(target.device), source)
