"""What rankings share: the units to rank, passes over the rows, and gradients of gates.

Importing this module does not import torch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from auber.search.methods import RankingChoice, RankingInputs
from auber.search.rankings.selection import (
    Site,
    UnitScores,
    costs_of,
    divide_by_costs,
    select_units,
)

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from auber.training.outputs import Targets

T = TypeVar("T")


def head_scores_to_json(scores: UnitScores) -> dict[str, dict[str, float]]:
    """Return the scores of heads as a JSON object whose keys are layers and heads."""
    return {
        str(layer): {str(head): score for head, score in of_layer.items()}
        for (kind, layer), of_layer in scores.items()
        if kind == "heads"
    }


def frozen_copy(inputs: RankingInputs) -> PreTrainedModel:
    """Return a copy of the model in eval mode whose weights take no gradients."""
    model = copy.deepcopy(inputs.model)
    return model.to(inputs.hardware.device).eval().requires_grad_(False)


def present_units(inputs: RankingInputs) -> dict[Site, tuple[int, ...]]:
    """Return the units to rank, without the layers that have none."""
    encoder = inputs.encoder
    present = {"heads": encoder.present, "neurons": encoder.present_neurons}
    return {
        (kind, layer): units
        for kind in inputs.kinds
        for layer in range(encoder.num_layers)
        if (units := present[kind](layer))
    }


def by_kind(values: Mapping[Site, T]) -> dict[str, dict[int, T]]:
    """Return the values by kind, then by layer."""
    found: dict[str, dict[int, T]] = {"heads": {}, "neurons": {}}
    for (kind, layer), value in values.items():
        found[kind][layer] = value
    return found


def padded_batches(
    inputs: RankingInputs, tokens_per_batch: int
) -> Iterator[tuple[dict[str, Tensor], Targets]]:
    """Yield all rows, longest first, as the model's inputs, each (rows, longest), and targets."""
    from auber.data.encoding import length_batches, pad_batch, part_batch

    rows, device = inputs.rows, inputs.hardware.device
    for batch in length_batches(rows.lengths, tokens_per_batch):
        padded = pad_batch([rows[row] for row in batch], rows.pad_token_id)
        yield part_batch({name: tensor.to(device) for name, tensor in padded.items()})


def row_losses(
    model: PreTrainedModel, kind: str, batch: dict[str, Tensor], targets: Targets
) -> Tensor:
    """Return the task's loss of each row of a batch: (rows,)."""
    from auber.training.outputs import outputs_of

    outputs = outputs_of(kind, model)
    return outputs.row_losses(outputs.logits(model(**batch)), targets, batch["attention_mask"])


# Per pass: the backward pass of a base-size encoder then needs about 2 GB.
_TOKENS_PER_BATCH = 2048


def sum_gate_gradients(
    inputs: RankingInputs, measure: Callable[[Tensor], Tensor], stage: str
) -> dict[Site, Tensor]:
    """Return the sums over rows of what is measured of the gates' gradients: (units,) each.

    Each unit's output is multiplied by a gate that stands at 1. Every row has its own gates, so one
    backward pass over a batch gives the derivatives of all its rows' losses. For numbers and
    vectors that are the model's own answers, they are those of the outputs (the Gauss-Newton form).
    """
    import torch

    from auber.models.surgery import gated
    from auber.training.outputs import outputs_of

    outputs = outputs_of(inputs.rows.kind, inputs.model)
    of_outputs = inputs.is_answered or inputs.config.size.of_outputs
    measured = outputs.row_sensitivities if of_outputs else outputs.row_losses
    device, present = inputs.hardware.device, present_units(inputs)
    model = frozen_copy(inputs)
    sums = {site: torch.zeros(len(units), dtype=torch.float64) for site, units in present.items()}
    inputs.progress.begin(stage, len(inputs.rows))
    done = 0
    for batch, targets in padded_batches(inputs, _TOKENS_PER_BATCH):
        num_rows = len(batch["input_ids"])
        gates = {
            site: torch.ones(num_rows, len(units), device=device, requires_grad=True)
            for site, units in present.items()
        }
        with gated(model, **by_kind(gates)):
            logits = outputs.logits(model(**batch))
            values = measured(logits, targets, batch["attention_mask"]).sum()
            gradients = torch.autograd.grad(values, list(gates.values()))
        for site, gradient in zip(gates, gradients, strict=True):  # (rows, units)
            sums[site] += measure(gradient).sum(0).cpu()
        done += num_rows
        inputs.progress.step(done)
    inputs.progress.end()
    return sums


def name_units(inputs: RankingInputs, scores: Mapping[Site, Tensor]) -> UnitScores:
    """Return the scores by the unit's number, from those of the present units in order."""
    return {
        site: dict(zip(units, scores[site].tolist(), strict=True))
        for site, units in present_units(inputs).items()
    }


def choose_by_importance(
    inputs: RankingInputs, name: str, measure: Callable[[RankingInputs], UnitScores]
) -> RankingChoice:
    """Remove the units of the lowest importance, for a target size per multiply-add."""
    if inputs.config.size.rankings > 1 and inputs.num_removed is None:
        return RankingChoice(_choose_repeatedly(inputs, measure), {})
    scores = inputs.once(name, lambda: measure(inputs))
    of_heads = head_scores_to_json(scores)
    ranked = divide_by_costs(inputs, scores) if inputs.num_removed is None else scores
    return RankingChoice(select_units(inputs, ranked), {"importance": of_heads} if of_heads else {})


def _choose_repeatedly(
    inputs: RankingInputs, measure: Callable[[RankingInputs], UnitScores]
) -> Any:
    from auber.models.encoders import encoder_of
    from auber.models.plan import PruningPlan
    from auber.models.surgery import remove

    count, keep = inputs.config.size.rankings, inputs.config.size.share
    start = costs_of(inputs.encoder, inputs.config.max_length).share(inputs.encoder.removed)
    model, plan = copy.deepcopy(inputs.model), PruningPlan()
    for number in range(1, count + 1):
        share = start * (keep / start) ** (number / count)
        config = inputs.config.replace({"size.keep": share})
        now = replace(inputs, model=model, encoder=encoder_of(model), config=config)
        chosen = select_units(now, divide_by_costs(now, measure(now)))
        plan = plan | chosen
        remove(model, chosen)
    return plan
