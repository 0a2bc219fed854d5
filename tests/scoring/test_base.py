from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from auber.errors import PlanError
from auber.models.surgery import remove_heads
from auber.scoring import CrossedScorer, DeviceWorkers, LayerScorer, MaskScorer, ShardedScorer
from tests.scoring.test_scorer import random_rows
from tests.small import cpu
from tests.tiny_models import tiny_model

TASK_TYPES = ["whole", "sharded", "crossed"]


def made(kind: str) -> MaskScorer:
    """A scorer of a layer that has lost head 0 of four."""
    model, rows = tiny_model("bert", num_labels=3), random_rows()
    remove_heads(model, {1: [0]})
    if kind == "crossed":
        parts = [(model, rows.select(range(9))), (model, rows.select(range(9, len(rows))))]
        return CrossedScorer(parts, 1, "accuracy", cpu())
    if kind == "sharded":
        workers = DeviceWorkers(cpu(), [torch.device("cpu")] * 2)
        return ShardedScorer(model, 1, rows, "accuracy", cpu(), workers)
    return LayerScorer(model, 1, rows, "accuracy", cpu())


@pytest.mark.parametrize("kind", TASK_TYPES)
@pytest.mark.parametrize("removed", [(0,), (1, 4), (-1,), (1, 2, 3), (0, 1, 2, 3), (3, 2, 1, 1)])
def test_heads_that_are_not_there_and_all_that_are_cannot_be_removed(kind, removed):
    scorer = made(kind)
    message = (
        rf"^layer 1: a mask must be some of the layer's heads \[1, 2, 3\], but not all, found {re.escape(str(list(removed)))}; "
        "name heads as the unpruned model numbers them, and leave one$"
    )
    for ask in (lambda: scorer.score(removed), lambda: scorer.score_many([(), removed])):
        with pytest.raises(PlanError, match=message):
            ask()
    with pytest.raises(PlanError, match=message):
        scorer.statistics([removed])


@pytest.mark.parametrize("kind", TASK_TYPES)
def test_any_order_repeats_and_numbers_of_other_libraries_are_the_same_mask(kind):
    scorer = made(kind)
    assert len(set(scorer.score_many([(1, 3), (3, 1), [3, 1, 3], np.array([1, 3])]))) == 1
    assert scorer.score_many([]) == []


def test_logits_are_asked_for_alike():
    with pytest.raises(PlanError, match=r"^layer 1: a mask must be .* found \[0\]; "):
        made("whole").logits((0,))


def test_a_layer_without_heads_loses_none():
    model, rows = tiny_model("bert", num_labels=3), random_rows()
    remove_heads(model, {1: range(4)}, allow_empty_layers=True)
    assert 0 <= LayerScorer(model, 1, rows, "accuracy", cpu()).score(()) <= 1
