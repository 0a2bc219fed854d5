"""Plans for the whole model: by slices as on a CPU, and by masks as on a GPU."""

from __future__ import annotations

import random

import pytest

from auber.errors import PlanError
from auber.models.plan import PruningPlan
from auber.models.surgery import remove
from auber.scoring import PlanScorer
from auber.scoring.scorer import _BATCH_TOKENS, PackedScorer
from auber.training.evaluation import evaluate_rows
from tests.scoring.test_scorer import (
    ALL_METRICS,
    assert_logits_are_those_of_the_pruned,
    made,
    metric_of,
    pruned_model,
)
from tests.small import cpu
from tests.tiny_models import HEADS, LAYERS, MODEL_TYPES, NEURONS


@pytest.fixture(params=["slices", "masks"])
def way(request, monkeypatch):
    if request.param == "masks":
        monkeypatch.setattr(PlanScorer, "_logits_of", PackedScorer._logits_of)
    return request.param


def random_plans(count, kinds=("heads", "neurons"), seed=0):
    """Return plans that leave each layer some of its units."""
    draw, totals = random.Random(seed), {"heads": HEADS, "neurons": NEURONS}
    return [
        PruningPlan(
            **{
                kind: {
                    layer: draw.sample(range(1, totals[kind]), draw.randrange(totals[kind] - 1))
                    for layer in range(LAYERS)
                }
                for kind in kinds
            }
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("kind", ["sequence", "tokens", "embeddings"])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_plan_predicts_what_the_pruned_model_predicts(model_type, kind, way, monkeypatch):
    monkeypatch.setitem(_BATCH_TOKENS, "cpu", 60)
    model, rows = made(kind, model_type)
    # Plans may name these again.
    remove(model, PruningPlan({0: [1], 2: [1, 2]}, {0: [5, 6], 1: [40]}))
    scorer = PlanScorer(model, rows, metric_of(rows), cpu())
    plans = [PruningPlan(), *random_plans(2)]
    plans += [*random_plans(1, ["heads"]), *random_plans(1, ["neurons"])]
    for plan in plans:
        assert_logits_are_those_of_the_pruned(scorer.logits(plan), model, plan, rows)


@pytest.mark.parametrize(("kind", "metric", "labels"), ALL_METRICS)
def test_the_score_is_the_metric_of_the_pruned_model(kind, metric, labels, way):
    model, rows = made(kind, labels=labels)
    plans = [PruningPlan(), *random_plans(7)]
    expected = [evaluate_rows(pruned_model(model, plan), rows, metric).score for plan in plans]
    found = PlanScorer(model, rows, metric, cpu()).score_many(plans)
    assert found == pytest.approx(expected, abs=1e-6)
    assert len(set(expected)) > 1


@pytest.mark.parametrize("model_type", ["bert", "deberta-v2", "modernbert", "mpnet"])
def test_several_plans_share_a_pass(model_type, monkeypatch):
    monkeypatch.setattr(PlanScorer, "_logits_of", PackedScorer._logits_of)
    monkeypatch.setattr(PlanScorer, "_masks_per_pass", lambda self: 2)
    model, rows = made(model_type=model_type)
    plans = random_plans(3)
    logits = PlanScorer(model, rows, "accuracy", cpu())._logits_of(plans)
    for plan, found in zip(plans, logits, strict=True):
        assert_logits_are_those_of_the_pruned(found, model, plan, rows)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ((1, 2), r"a mask of the whole model must be a PruningPlan, found \(1, 2\); write such as"),
        (PruningPlan({1: range(3)}), "layer 1: the mask removes all 3 heads that are left; at"),
        (PruningPlan({3: [0]}), "layer 3: the model has layers 0 to 2; correct the plan"),
    ],
)
def test_plans_that_do_not_fit(mask, message):
    model, rows = made()
    remove(model, {1: [3]})
    with pytest.raises(PlanError, match=f"^{message}"):
        PlanScorer(model, rows, "accuracy", cpu()).score(mask)
