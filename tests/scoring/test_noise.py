"""The noise of what a head's removal gains, and the memory of who computes it."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch

from auber.data.encoding import EncodedRows
from auber.errors import ConfigError
from auber.metrics.task_metrics import get_metric
from auber.models.surgery import remove_heads
from auber.scoring import CrossedScorer, LayerScorer, ShardedScorer, check_caution, standard_error
from auber.training.evaluation import predict
from tests.scoring.test_crossfit import made
from tests.scoring.test_scorer import random_rows
from tests.scoring.test_sharded import on_the_cpu
from tests.small import cpu
from tests.tiny_models import tiny_model


def noise_of_a_head(scorer, metric):
    statistics = scorer.statistics([(), *((head,) for head in scorer.present)])
    return standard_error(get_metric(metric), statistics[0], statistics[1:])


def measured_plainly(parts, layer, metric, heads):
    """From the predictions of the physically pruned models."""
    rule, found = get_metric(metric), []
    for removed in ((), *((head,) for head in heads)):
        logits = []
        for model, rows in parts:
            pruned = copy.deepcopy(model)
            remove_heads(pruned, {layer: removed})
            logits.append(predict(pruned, rows))
        labels = torch.cat([rows.labels for _, rows in parts])
        found.append(rule.by_row(rule.statistics(torch.cat(logits), labels)))
    gains = torch.stack(found[1:]) - found[0]  # (heads, rows)
    return float((gains.var(1) / gains.shape[1]).sqrt().mean())


def near_its_predictions(model, rows):
    answers = predict(model, rows)[:, 0] + 0.1 * rows.labels
    return EncodedRows(rows.input_ids, rows.token_types, answers, rows.pad_token_id)


@pytest.mark.parametrize(
    ("metric", "labels"), [("explained", 2), ("explained", 3), ("r_squared", 1)]
)
def test_the_standard_error_of_the_differences_row_by_row(metric, labels):
    parts = [
        (model, near_its_predictions(model, rows) if labels == 1 else rows)
        for model, rows in made(labels)
    ]
    scorer = CrossedScorer(parts, 1, metric, cpu())
    found = noise_of_a_head(scorer, metric)
    assert found > 0
    assert found == pytest.approx(measured_plainly(parts, 1, metric, scorer.present), rel=1e-3)


def test_every_scorer_finds_the_same():
    ((model, rows),) = made(2, sizes=(40,))
    scorers = [
        LayerScorer(model, 1, rows, "explained", cpu()),
        ShardedScorer(model, 1, rows, "explained", cpu(), on_the_cpu(2)),
        CrossedScorer([(model, rows)], 1, "explained", cpu()),
    ]
    found = [noise_of_a_head(scorer, "explained") for scorer in scorers]
    assert found == pytest.approx(
        [measured_plainly([(model, rows)], 1, "explained", scorers[0].present)] * 3, rel=1e-3
    )


def test_one_row_has_no_noise():
    model, rows = tiny_model("bert", num_labels=1), random_rows(1, regression=True)
    assert noise_of_a_head(LayerScorer(model, 1, rows, "r_squared", cpu()), "r_squared") == 0


def test_a_metric_that_is_no_mean_over_rows():
    message = (
        r"^reward.caution must be 0 where rewards are changes of matthews, which is no mean over rows, found 0.5; "
        r"set it to 0, or reward.measure=smooth$"
    )
    with pytest.raises(ConfigError, match=message):
        check_caution(get_metric("matthews"), 0.5)
    check_caution(get_metric("matthews"), 0)
    check_caution(get_metric("explained"), 0.5)


def test_a_scorer_that_nobody_needs_is_gone_at_once():
    """Its caches fill a GPU, and nothing collects garbage between two layers."""
    model, rows = tiny_model("bert", num_labels=2), random_rows(labels=2)
    scorers = [
        LayerScorer(model, 1, rows, "explained", cpu()),
        ShardedScorer(model, 1, rows, "explained", cpu(), on_the_cpu(2)),
        CrossedScorer([(model, rows), (copy.deepcopy(model), rows)], 1, "explained", cpu()),
    ]
    gc.collect()
    gc.disable()
    try:
        for scorer in scorers:
            scorer.score((1,))
        left = [weakref.ref(scorer) for scorer in scorers]
        del scorer
        scorers.clear()
        assert [reference() for reference in left] == [None, None, None]
    finally:
        gc.enable()
