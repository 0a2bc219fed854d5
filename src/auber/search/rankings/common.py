"""What rankings share: the units to rank, and passes over the rows.

Importing this module does not import torch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from auber.search.methods import RankingInputs
from auber.search.rankings.selection import LayerScores, UnitScores

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from auber.training.outputs import Targets


def scores_to_json(scores: LayerScores) -> dict[str, dict[str, float]]:
    """Return the scores as a JSON object whose keys are layers and heads."""
    return {
        str(layer): {str(head): score for head, score in heads.items()}
        for layer, heads in scores.items()
    }


def frozen_copy(inputs: RankingInputs) -> PreTrainedModel:
    """Return a copy of the model in eval mode whose weights take no gradients."""
    model = copy.deepcopy(inputs.model)
    return model.to(inputs.hardware.device).eval().requires_grad_(False)


def present_heads(inputs: RankingInputs) -> dict[int, tuple[int, ...]]:
    """Return the heads to rank by layer, without the layers that have none."""
    encoder = inputs.encoder
    layers = range(encoder.num_layers) if inputs.ranks_heads else ()
    return {layer: heads for layer in layers if (heads := encoder.present(layer))}


def present_neurons(inputs: RankingInputs) -> dict[int, tuple[int, ...]]:
    """Return the neurons to rank by layer, without the layers that have none."""
    encoder = inputs.encoder
    layers = range(encoder.num_layers) if inputs.ranks_neurons else ()
    return {layer: neurons for layer in layers if (neurons := encoder.present_neurons(layer))}


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
    from auber.training.outputs import OUTPUTS

    outputs = OUTPUTS[kind]
    return outputs.row_losses(outputs.logits(model(**batch)), targets, batch["attention_mask"])


# Per pass: the backward pass of a base-size encoder then needs about 2 GB.
_TOKENS_PER_BATCH = 2048


def sum_gate_gradients(
    inputs: RankingInputs, measure: Callable[[Tensor], Tensor], stage: str
) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
    """Return the sums over rows of what is measured of the gates' gradients, by layer.

    Each unit's output is multiplied by a gate that stands at 1. Every row has its own gates, so one
    backward pass over a batch gives the derivatives of all its rows' losses. The first result has
    (present_heads,) for each layer, the second (present_neurons,).
    """
    import torch

    from auber.models.surgery import gated

    device = inputs.hardware.device
    model = frozen_copy(inputs)
    kinds = (present_heads(inputs), present_neurons(inputs))
    sums = tuple(_zeros(present) for present in kinds)
    inputs.progress.begin(stage, len(inputs.rows))
    done = 0
    for batch, targets in padded_batches(inputs, _TOKENS_PER_BATCH):
        num_rows = len(batch["input_ids"])
        gates = tuple(
            {
                layer: torch.ones(num_rows, len(units), device=device, requires_grad=True)
                for layer, units in present.items()
            }
            for present in kinds
        )
        with gated(model, *gates):
            loss = row_losses(model, inputs.rows.kind, batch, targets).sum()
            places = [(kind, layer) for kind, by_layer in enumerate(gates) for layer in by_layer]
            wanted = [gates[kind][layer] for kind, layer in places]
            gradients = torch.autograd.grad(loss, wanted)
        for (kind, layer), gradient in zip(places, gradients, strict=True):  # (rows, units)
            sums[kind][layer] += measure(gradient).sum(0).cpu()
        done += num_rows
        inputs.progress.step(done)
    inputs.progress.end()
    return sums[0], sums[1]


def name_scores(
    inputs: RankingInputs, heads: Mapping[int, Tensor], neurons: Mapping[int, Tensor]
) -> UnitScores:
    """Return the scores by the unit's number, from those of the present units in order."""
    return UnitScores(_name(present_heads(inputs), heads), _name(present_neurons(inputs), neurons))


def _zeros(present: Mapping[int, Sequence[int]]) -> dict[int, Tensor]:
    import torch

    return {layer: torch.zeros(len(units), dtype=torch.float64) for layer, units in present.items()}


def _name(
    present: Mapping[int, Sequence[int]], scores: Mapping[int, Tensor]
) -> dict[int, dict[int, float]]:
    return {
        layer: dict(zip(units, scores[layer].tolist(), strict=True))
        for layer, units in present.items()
    }
