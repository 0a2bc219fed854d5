"""What rankings share: removing the heads with the lowest scores, and passes over the rows.

Importing this module does not import torch.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from auber.errors import ModelError, PlanError
from auber.models.plan import PruningPlan
from auber.search.methods import RankingInputs

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from auber.models.encoders import Encoder
    from auber.training.outputs import Targets

HeadScores = Mapping[int, Mapping[int, float]]  # by layer, then by present head


def remove_lowest(scores: HeadScores, num_removed: int) -> PruningPlan:
    """Return the plan that removes the heads with the lowest scores and leaves one in each layer.

    Of equal scores the lower layer goes first, then the lower head.
    """
    ranked = sorted(
        (score, layer, head) for layer, heads in scores.items() for head, score in heads.items()
    )
    for score, layer, head in ranked:
        if not math.isfinite(score):
            raise ModelError(
                f"layer {layer}, head {head}: its score must be a finite number, found {score}; "
                "check the model's weights"
            )
    removable = {layer: max(0, len(heads) - 1) for layer, heads in scores.items()}
    most = sum(removable.values())
    if not 0 <= num_removed <= most:
        raise PlanError(
            f"plan: the number of heads to remove must be from 0 to {most} (one head stays in each "
            f"layer), found {num_removed}"
        )
    removed: dict[int, list[int]] = {layer: [] for layer in scores}
    left = num_removed
    for _, layer, head in ranked:
        if left and len(removed[layer]) < removable[layer]:
            removed[layer].append(head)
            left -= 1
    return PruningPlan(removed)


def scores_to_json(scores: HeadScores) -> dict[str, dict[str, float]]:
    """Return the scores as a JSON object whose keys are layers and heads."""
    return {
        str(layer): {str(head): score for head, score in heads.items()}
        for layer, heads in scores.items()
    }


def frozen_copy(inputs: RankingInputs) -> PreTrainedModel:
    """Return a copy of the model in eval mode whose weights take no gradients."""
    model = copy.deepcopy(inputs.model)
    return model.to(inputs.hardware.device).eval().requires_grad_(False)


def present_heads(encoder: Encoder) -> dict[int, tuple[int, ...]]:
    """Return the present heads by layer, without the layers that have none."""
    return {
        layer: heads for layer in range(encoder.num_layers) if (heads := encoder.present(layer))
    }


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
