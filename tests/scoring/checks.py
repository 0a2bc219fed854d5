"""The scorer's contract, for a model of any family and task type."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import torch

from auber.data.encoding import EncodedRows
from auber.models.surgery import remove_heads
from auber.scoring import LayerScorer
from auber.training.evaluation import predict
from tests.kinds import METRICS_OF, packed_order
from tests.small import cpu
from tests.tiny_models import HEADS


def assert_predicts_like_the_pruned(model: Any, layer: int, rows: EncodedRows) -> None:
    """Compare every mask with the pruned model; head 0 of the layer must be removed already."""
    is_sequence = rows.kind == "sequence"
    metric = "accuracy" if is_sequence else METRICS_OF[rows.kind][0]
    scorer = LayerScorer(model, layer, rows, metric, cpu(), tokens_per_batch=60)
    by_length = sorted(range(len(rows)), key=lambda row: -rows.lengths[row])
    order = torch.tensor(by_length) if is_sequence else packed_order(rows)
    masks = [
        mask for size in range(HEADS - 1) for mask in itertools.combinations(range(1, HEADS), size)
    ]
    for removed in masks:
        pruned = copy.deepcopy(model)
        remove_heads(pruned, {layer: removed})
        plain, fast = predict(pruned, rows)[order], scorer.logits(removed)
        assert fast.shape == plain.shape
        torch.testing.assert_close(fast, plain, atol=1e-5 if is_sequence else 2e-5, rtol=1e-5)
        assert torch.equal(fast.argmax(1), plain.argmax(1))
