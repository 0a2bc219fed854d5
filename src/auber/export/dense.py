"""The target `dense`: full-size weights with zeros for removed units, for plain transformers.

The folder holds what transformers itself would have saved. It is neither faster nor smaller than
the unpruned model, but every tool that takes a transformers folder can use it.

A head whose value rows, value bias and output columns are zero adds nothing, whatever it attends
to. Its query and key are zero too, so that nothing that looks learned is left of it. The same holds
for the rows and the column of a neuron.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from auber.errors import PlanError
from auber.export.source import Source
from auber.export.verification import Compute, Exported, write_verified
from auber.models import checkpoint
from auber.models.encoders import Encoder, encoder_of
from auber.models.encoders.base import Projection
from auber.models.plan import PruningPlan
from auber.models.surgery import remove
from auber.system.progress import Progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def export(source: Source, place: Path, progress: Progress) -> Exported:
    """Write the folder."""
    return write_verified("dense", source, place, _write, _load, progress)


def _write(source: Source, folder: Path) -> None:
    checkpoint.save(restore_units(source.model, source.encoder.removed), source.tokenizer, folder)


def _load(source: Source, folder: Path) -> Compute:
    """Load the folder as a user without this package does."""
    import transformers

    auto_class = getattr(transformers, source.task_type.auto_class)
    model = auto_class.from_pretrained(folder, dtype=torch.float32)
    return lambda batch: model(**batch)


def restore_units(model: PreTrainedModel, plan: PruningPlan) -> PreTrainedModel:
    """Return a copy of the model in which these removed units are present again, as zeros.

    If no unit remains removed, the copy is a plain transformers model without a trace of pruning.
    """
    pruned = encoder_of(model)
    if present := plan - pruned.removed:
        raise PlanError(
            f"only removed units can be put back, found {present!r:.80}; correct the plan"
        )
    restored = _build(model, pruned.removed - plan)
    with torch.no_grad():
        weights = model.state_dict()
        for name, tensor in restored.state_dict().items():
            if tensor.shape == weights[name].shape:
                tensor.copy_(weights[name])
        for layer in plan.heads:
            _fill_attention(pruned, encoder_of(restored), layer)
        for layer in plan.neurons:
            _fill_feed_forward(pruned, encoder_of(restored), layer)
    return restored.eval()


def _build(model: PreTrainedModel, plan: PruningPlan) -> PreTrainedModel:
    """Return a model of the same class and dtype without the plan's units, with empty weights."""
    from transformers.initialization import no_init_weights

    with no_init_weights():
        built = type(model)._from_config(
            encoder_of(model).unpruned_config(),
            attn_implementation=model.config._attn_implementation,
        )
    built.to(device=model.device, dtype=model.dtype)
    if plan:
        remove(built, plan, allow_empty_layers=True)
    return built


def _fill_attention(pruned: Encoder, restored: Encoder, layer: int) -> None:
    """Copy each head's weights to its place among more heads, with zeros between."""
    small, large = pruned.parts(layer), restored.parts(layer)
    places = [restored.present(layer).index(head) for head in pruned.present(layer)]
    features = pruned.features(places)
    for source, target in zip(small.projections, large.projections, strict=True):
        _fill_rows(target, features, source)  # (heads * head_dim, hidden)
    _fill(large.output.weight, 1, features, small.output.weight)  # (hidden, heads * head_dim)


def _fill_feed_forward(pruned: Encoder, restored: Encoder, layer: int) -> None:
    """Copy each neuron's weights to its place among more neurons, with zeros between."""
    small, large = pruned.parts(layer), restored.parts(layer)
    place_of = {neuron: place for place, neuron in enumerate(restored.present_neurons(layer))}
    places = [place_of[neuron] for neuron in pruned.present_neurons(layer)]
    index = torch.tensor(places, dtype=torch.long)
    width = large.contract.in_features
    halves = 2 if large.is_gated else 1
    rows = torch.cat([index + half * width for half in range(halves)])
    _fill_rows(large.expand, rows, small.expand)  # (neurons, hidden), twice as many if gated
    _fill(large.contract.weight, 1, index, small.contract.weight)  # (hidden, neurons)


def _fill_rows(target: Projection, rows: Tensor, source: Projection) -> None:
    _fill(target.weight, 0, rows, source.weight)
    if source.bias is not None and target.bias is not None:
        _fill(target.bias, 0, rows, source.bias)


def _fill(target: Tensor, dim: int, features: Tensor, source: Tensor) -> None:
    target.zero_().index_copy_(dim, features.to(target.device), source)
