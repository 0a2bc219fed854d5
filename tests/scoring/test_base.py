"""What holds for every scorer: the masks that it accepts, and the standard error of gains."""

from __future__ import annotations

import copy
import gc
import re
import weakref

import numpy as np
import pytest
import torch

from auber.errors import ConfigError, PlanError
from auber.metrics.task_metrics import get_metric
from auber.models.plan import PruningPlan
from auber.models.surgery import remove
from auber.scoring import (
    CrossFitScorer,
    DeviceWorkers,
    LayerScorer,
    ShardedScorer,
    check_caution,
    standard_errors,
)
from auber.scoring import scorer as module
from auber.training.evaluation import predict
from tests.scoring.test_crossfit import made_folds, near_predictions
from tests.scoring.test_scorer import pruned_score, random_rows
from tests.small import cpu
from tests.tiny_models import tiny_model


def whole(model, rows, metric):
    return LayerScorer(model, 1, rows, metric, cpu())


def sharded(model, rows, metric):
    workers = DeviceWorkers(cpu(), [torch.device("cpu")] * 2)
    return ShardedScorer(model, 1, rows, metric, cpu(), workers)


def cross_fit(model, rows, metric):
    folds = [(model, rows.select(range(9))), (model, rows.select(range(9, len(rows))))]
    return CrossFitScorer(folds, 1, metric, cpu())


SCORERS = [whole, sharded, cross_fit]


def pruned_start():
    """Return a model whose layer 1 has lost head 0 of four, rows and a metric."""
    model = tiny_model("bert", num_labels=3)
    remove(model, {1: [0]})
    return model, random_rows(), "accuracy"


@pytest.mark.parametrize("make", SCORERS)
@pytest.mark.parametrize("removed", [(0,), (1, 4), (-1,), (1, 2, 3), (0, 1, 2, 3), (3, 2, 1, 1)])
def test_absent_heads_and_all_heads_cannot_be_removed(make, removed):
    scorer = make(*pruned_start())
    calls = [(scorer.score, removed), (scorer.score_many, [(), removed])]
    calls.append((scorer.statistics, [removed]))
    if isinstance(scorer, LayerScorer):
        calls.append((scorer.logits, removed))
    message = (
        r"^layer 1: a mask must be some of the layer's heads \[1, 2, 3\], but not all, found "
        rf"{re.escape(str(list(removed)))}; name heads as the unpruned model numbers them, and "
        "leave one$"
    )
    for call, argument in calls:
        with pytest.raises(PlanError, match=message):
            call(argument)


@pytest.mark.parametrize(
    ("heads", "neurons", "message"),
    [
        ({}, {1: [5, 48]}, "layer 1: its neurons are numbered 0 to 47, the plan removes neuron 48"),
        ({}, {1: range(47)}, "layer 1: the mask removes all 47 neurons that are left; at least"),
        ({1: [3, 2, 1]}, {}, "layer 1: the mask removes all 3 heads that are left; at least one"),
        ({2: [0]}, {}, "layer 2: the scorer's masks must be of layer 1; leave other layers out"),
        ({}, {3: [0]}, "layer 3: the model has layers 0 to 2; correct the plan"),
    ],
)
@pytest.mark.parametrize("make", SCORERS)
def test_plans_that_do_not_fit(make, heads, neurons, message):
    model, *others = pruned_start()
    remove(model, PruningPlan(neurons={1: [47]}))
    scorer = make(model, *others)
    with pytest.raises(PlanError, match=f"^{message}"):
        scorer.score_many([(1,), PruningPlan(heads, neurons)])


@pytest.mark.parametrize("make", SCORERS)
def test_every_scorer_scores_neurons(make):
    model, rows, metric = pruned_start()
    masks = [PruningPlan(neurons={1: range(0, 40, 2)}), PruningPlan({1: [2]}, {1: [7]}), (1,)]
    expected = [pruned_score(model, 1, mask, rows, metric) for mask in masks]
    assert make(model, rows, metric).score_many(masks) == pytest.approx(expected)
    assert make(model, rows, metric).score_many(masks[:1]) == pytest.approx(expected[:1])


@pytest.mark.parametrize("make", SCORERS)
def test_equal_masks_in_any_form(make):
    scorer = make(*pruned_start())
    # A plan may name what is gone already.
    plans = [PruningPlan({1: [1, 3]}), PruningPlan({1: [0, 1, 3]})]
    masks = [(1, 3), (3, 1), [3, 1, 3], np.array([1, 3]), *plans]
    assert len(set(scorer.score_many(masks))) == 1
    assert scorer.score_many([]) == []


def test_a_layer_without_heads_can_be_scored():
    model = tiny_model("bert", num_labels=3)
    remove(model, {1: range(4)}, allow_empty_layers=True)
    assert 0 <= whole(model, random_rows(), "accuracy").score(()) <= 1


@pytest.mark.parametrize(("make", "sharing"), [(whole, 1), (sharded, 2), (cross_fit, 2)])
def test_scorers_on_one_device_share_its_memory(make, sharing, monkeypatch):
    rooms, cut_rows = [], LayerScorer._cut_rows

    def listening(self, *arguments):
        chunks = cut_rows(self, *arguments)
        rooms.append(self._room)
        return chunks

    monkeypatch.setattr(LayerScorer, "_cut_rows", listening)
    monkeypatch.setattr(module, "available_bytes", lambda device: 2**50)
    scorer = make(*pruned_start())
    assert rooms == [], "nothing is computed before the first score"
    scorer.score((1,))
    share = module._USABLE_MEMORY * 2**50 / sharing
    assert rooms == pytest.approx([share] * sharing, rel=1e-3)


def test_an_unused_scorer_is_freed_at_once():
    """Its caches fill a GPU, and garbage is not collected between two layers."""
    model, rows = tiny_model("bert", num_labels=2), random_rows(labels=2)
    scorers = [make(model, rows, "explained") for make in SCORERS]
    gc.collect()
    gc.disable()
    try:
        for scorer in scorers:
            scorer.score((1,))
        references = [weakref.ref(scorer) for scorer in scorers]
        del scorer
        scorers.clear()
        assert [reference() for reference in references] == [None, None, None]
    finally:
        gc.enable()


# --- the standard error of gains -----------------------------------------------------------------


def found_errors(scorer, start=()):
    masks = [{*start} ^ {head} for head in scorer.present]
    statistics = scorer.statistics([start, *map(sorted, masks)])
    return standard_errors(scorer.metric, statistics[0], statistics[1:])


def expected_errors(folds, metric, heads, start=()):
    """Compute it from the predictions of the physically pruned models."""
    rule, scores = get_metric(metric), []
    for removed in (start, *({*start} ^ {head} for head in heads)):
        terms = []
        for model, rows in folds:
            pruned = copy.deepcopy(model)
            remove(pruned, {1: removed})
            terms.append(rule.by_row(rule.statistics(predict(pruned, rows), rows.labels)))
        scores.append(torch.cat(terms))
    gains = torch.stack(scores[1:]) - scores[0]  # (heads, rows)
    return (gains.var(1) / gains.shape[1]).sqrt().tolist()


@pytest.mark.parametrize(
    ("metric", "labels"), [("explained", 2), ("explained", 3), ("r_squared", 1)]
)
def test_the_standard_error_of_differences_by_row(metric, labels):
    folds = made_folds(labels)
    if labels == 1:
        folds = near_predictions(folds)
    scorer = CrossFitScorer(folds, 1, metric, cpu())
    for start in ((), (0, 2)):
        found = found_errors(scorer, start)
        assert min(found) > 0
        expected = expected_errors(folds, metric, scorer.present, start)
        assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("make", [whole, sharded])
def test_a_sharded_scorer_gives_the_same_error(make):
    ((model, rows),) = made_folds(2, sizes=(40,))
    expected = expected_errors([(model, rows)], "explained", range(4))
    found = found_errors(make(model, rows, "explained"))
    assert found == pytest.approx(expected, rel=1e-3)


def test_one_row_has_no_error():
    model, rows = tiny_model("bert", num_labels=1), random_rows(1, regression=True)
    assert found_errors(whole(model, rows, "r_squared")) == [0.0] * 4


def test_caution_needs_a_mean_over_rows():
    message = (
        r"^reward.caution must be 0 where rewards are changes of matthews, which is no mean over "
        r"rows, found 0.5; set it to 0, or reward.measure=smooth$"
    )
    with pytest.raises(ConfigError, match=message):
        check_caution(get_metric("matthews"), 0.5)
    check_caution(get_metric("matthews"), 0)
    check_caution(get_metric("explained"), 0.5)
