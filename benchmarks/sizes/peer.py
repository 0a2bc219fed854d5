"""The peer torch-pruning as a ranking: it chooses heads and neurons, and all else is as usual.

torch-pruning removes the same share of every layer. Here it gets that of heads, and that of neurons
which then meets the size, and is kept from narrowing the hidden states. Its importance is its
first-order Taylor expansion of the loss, accumulated over the rows. Its choice is carried out by
`auber.remove`, because it leaves a transformers model that cannot be saved; a test shows that both
compute the same. The relative position bias of MPNet, which it cannot trace, is left out of the
trace and only there: it has no part in the importance.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from auber.models.plan import PruningPlan
from auber.search.methods import Method, RankingChoice, RankingInputs
from auber.search.rankings.common import padded_batches, row_losses
from auber.search.rankings.selection import costs_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from auber.models.costs import UnitCosts

NAME, VERSION = "torch-pruning", "1.6.1"
_TOKENS_PER_BATCH = 8192


def is_installed() -> bool:
    """Return whether the package can be imported."""
    return importlib.util.find_spec("torch_pruning") is not None


def choose_plan(inputs: RankingInputs) -> RankingChoice:
    """Return the units that torch-pruning removes for the target size."""
    model: PreTrainedModel = inputs.once(NAME, lambda: _with_gradients(inputs))
    size = inputs.config.size
    heads, neurons = find_widths(
        costs_of(inputs.encoder, inputs.config.max_length), size.share, size.multiple
    )
    plan = find_plan(model, make_pruner(model, heads, neurons).step(interactive=True))
    return RankingChoice(plan)


def find_plan(model: PreTrainedModel, groups: Iterable[Any]) -> PruningPlan:
    """Return the heads and neurons that the groups of torch-pruning remove."""
    from auber.models.encoders import encoder_of

    encoder = encoder_of(model)
    parts = [encoder.parts(layer) for layer in range(encoder.num_layers)]
    outputs = {part.output: layer for layer, part in enumerate(parts)}
    expands = {part.expand: layer for layer, part in enumerate(parts)}
    heads: dict[int, set[int]] = {}
    neurons: dict[int, list[int]] = {}
    for group in groups:
        for dependency, channels in group:
            module, slices = dependency.target.module, dependency.handler.__name__
            if module in outputs and slices == "prune_in_channels":
                heads[outputs[module]] = {channel // encoder.head_dim for channel in channels}
            elif module in expands and slices == "prune_out_channels":
                neurons[expands[module]] = list(channels)
    return PruningPlan(heads, neurons)


def find_widths(costs: UnitCosts, share: float, multiple: int) -> tuple[int, int]:
    """Return the heads and neurons of each layer that have at most a share of the multiply-adds."""
    heads = max(1, round(share * costs.num_heads))
    room = share * costs.total / costs.num_layers - heads * costs.head
    return heads, int(room / costs.neuron / multiple + 1e-9) * multiple


def make_pruner(model: PreTrainedModel, heads: int, neurons: int) -> Any:
    """Return the pruner that leaves so many heads and neurons in each layer."""
    import torch

    from auber.models.encoders import encoder_of

    tp: Any = importlib.import_module("torch_pruning")
    encoder = encoder_of(model)
    parts = [encoder.parts(layer) for layer in range(encoder.num_layers)]
    projections = [each for part in parts for each in (part.query, part.key, part.value)]
    base: Any = model.base_model
    biased = hasattr(base, "encoder") and hasattr(base.encoder, "compute_position_bias")
    if biased:
        base.encoder.compute_position_bias = lambda *_: None
    example = {"input_ids": torch.full((2, 8), 5, device=model.device)}
    example["attention_mask"] = torch.ones_like(example["input_ids"])
    # It rounds down, and asks a layer for heads only if its channels may go.
    ratios: dict[Any, float] = dict.fromkeys(projections, 0.5)
    ratios |= {part.expand: 1 - (neurons + 0.5) / encoder.num_neurons for part in parts}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the parameters that it leaves alone
            return tp.pruner.BasePruner(
                model,
                example,
                importance=tp.importance.GroupTaylorImportance(),
                pruning_ratio=0.0,  # of all that is not named here
                pruning_ratio_dict=ratios,
                num_heads=dict.fromkeys(projections, encoder.num_heads),
                prune_num_heads=True,
                prune_head_dims=False,
                head_pruning_ratio=(encoder.num_heads - heads - 0.5) / encoder.num_heads,
                output_transform=lambda outputs: outputs.logits.sum(),
            )
    finally:
        if biased:
            del base.encoder.compute_position_bias  # that of the class again


def _with_gradients(inputs: RankingInputs) -> PreTrainedModel:
    """Return a copy of the model with the gradients of the loss, summed over the rows."""
    import copy

    import torch

    model = copy.deepcopy(inputs.model).to(inputs.hardware.device).eval()
    model.set_attn_implementation("eager")
    inputs.progress.begin("gradients for torch-pruning", len(inputs.rows))
    done = 0
    for batch, targets in padded_batches(inputs, _TOKENS_PER_BATCH):
        torch.autograd.backward(row_losses(model, inputs.rows.kind, batch, targets).sum())
        done += len(batch["input_ids"])
        inputs.progress.step(done)
    inputs.progress.end()
    return model


METHOD = Method(
    NAME,
    f"the peer torch-pruning {VERSION} chooses the same share of each layer",
    choose_plan=choose_plan,
    removes_neurons=True,
)
