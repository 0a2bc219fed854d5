"""The target `dense`: full-size weights with zeros for removed units, for plain transformers.

The folder holds what transformers itself would have saved. It is neither faster nor smaller than
the unpruned model, but every tool that takes a transformers folder can use it.

A head whose value rows, value bias and output columns are zero adds nothing, whatever it attends
to. Its query and key are zero too, so that nothing that looks learned is left of it. The same holds
for the rows and the column of a neuron.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from auber.errors import PlanError
from auber.export.source import Source
from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.pooling import attach_modules, modules_of
from auber.models.surgery import remove

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def write(source: Source, folder: Path) -> None:
    """Write the files."""
    checkpoint.save(restore_units(source.model, source.encoder.removed), source.tokenizer, folder)


def load(source: Source, folder: Path) -> PreTrainedModel:
    """Load the folder as a user without this package does."""
    import transformers

    auto_class = getattr(transformers, source.task_type.auto_class)
    model: PreTrainedModel = auto_class.from_pretrained(folder, dtype=torch.float32)
    return model


@torch.no_grad()
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
    # Number the entries of each parameter and remove the units again: the numbers that are left
    # say where the model's own weights belong.
    numbered = copy.deepcopy(restored)
    for parameter in numbered.parameters():
        torch.arange(parameter.numel(), out=parameter.view(-1))
    remove(numbered, plan, allow_empty_layers=True)
    numbers, weights = numbered.state_dict(), model.state_dict()
    for name, tensor in restored.state_dict().items():
        if tensor.shape == weights[name].shape:
            tensor.copy_(weights[name])
        else:
            assert tensor.numel() <= 2**24, "float32 has no larger whole numbers"
            index = numbers[name].long().flatten()
            tensor.zero_().view(-1)[index] = weights[name].to(tensor).flatten()
    return restored.to(device=model.device, dtype=model.dtype).eval()


def _build(model: PreTrainedModel, plan: PruningPlan) -> PreTrainedModel:
    """Return a model of the same class without the plan's units, in float32, with any weights."""
    from transformers.initialization import no_init_weights

    with no_init_weights():
        built = type(model)._from_config(
            encoder_of(model).unpruned_config(),
            attn_implementation=model.config._attn_implementation,
        )
    built.float()
    attach_modules(built, modules_of(model))
    if plan:
        remove(built, plan, allow_empty_layers=True)
    return built
