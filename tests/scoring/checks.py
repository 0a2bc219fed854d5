"""The scorer's contract, for a model of any kind."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import torch

from auber.data.encoding import EncodedRows
from auber.models.surgery import remove_heads
from auber.scoring import LayerScorer
from auber.training.evaluation import predict
from tests.small import cpu
from tests.tiny_models import HEADS


def assert_predicts_like_the_pruned(model: Any, layer: int, rows: EncodedRows) -> None:
    """Head 0 of the layer is gone already; every further mask must predict what the model without its heads predicts."""
    scorer = LayerScorer(model, layer, rows, "accuracy", cpu(), tokens_per_slab=60)
    order = torch.tensor(sorted(range(len(rows)), key=lambda row: -rows.lengths[row]))
    masks = [
        mask for size in range(HEADS - 1) for mask in itertools.combinations(range(1, HEADS), size)
    ]
    for removed in masks:
        pruned = copy.deepcopy(model)
        remove_heads(pruned, {layer: removed})
        plain, fast = predict(pruned, rows)[order], scorer.logits(removed)
        torch.testing.assert_close(fast, plain, atol=1e-5, rtol=1e-5)
        assert torch.equal(fast.argmax(1), plain.argmax(1))
