"""Caution: what a mask gains, less standard errors of it."""

from __future__ import annotations

import copy

import pytest
import torch

from auber.errors import ConfigError
from auber.evaluation import predict
from auber.metrics import get_metric
from auber.scoring import CrossedScorer, LayerScorer, ShardedScorer
from auber.surgery import remove_heads
from auber.tasks.encoding import EncodedRows
from tests.models import tiny_model
from tests.scoring.test_crossed import made
from tests.scoring.test_scorer import random_rows
from tests.scoring.test_sharded import on_the_cpu
from tests.small import cpu

MASKS = [(), (1,), (0, 2), (1, 2, 3)]


def scored_plainly(parts, layer, metric, removed, caution):
    """From the predictions of the physically pruned models."""
    rule, found = get_metric(metric), []
    for heads in ((), removed):
        logits = []
        for model, rows in parts:
            pruned = copy.deepcopy(model)
            remove_heads(pruned, {layer: heads})
            logits.append(predict(pruned, rows))
        labels = torch.cat([rows.labels for _, rows in parts])
        found.append(rule.statistics(torch.cat(logits), labels))
    gains = rule.by_row(found[1]) - rule.by_row(found[0])
    noise = (gains.var() / len(gains)).sqrt()
    return float(rule.finish(found[0]) + gains.mean() - caution * noise)


def near_its_predictions(model, rows):
    answers = predict(model, rows)[:, 0] + 0.1 * rows.labels
    return EncodedRows(rows.input_ids, rows.token_types, answers, rows.pad_token_id)


@pytest.mark.parametrize(("metric", "labels"), [("explained", 2), ("explained", 3), ("r_squared", 1)])
@pytest.mark.parametrize("caution", [0.5, 2.0])
def test_standard_errors_are_taken_off_what_is_gained(caution, metric, labels):
    parts = [(model, near_its_predictions(model, rows) if labels == 1 else rows) for model, rows in made(labels)]
    scorer = CrossedScorer(parts, 1, metric, cpu(), caution)
    expected = [scored_plainly(parts, 1, metric, removed, caution) for removed in MASKS]
    assert scorer.score_many(MASKS) == pytest.approx(expected, abs=1e-6)
    plain = CrossedScorer(parts, 1, metric, cpu())
    assert scorer.score(()) == plain.score(())
    assert all(scorer.score(mask) < plain.score(mask) for mask in MASKS[1:])


def test_every_scorer_is_as_cautious():
    ((model, rows),) = made(2, sizes=(40,))
    scorers = [
        LayerScorer(model, 1, rows, "explained", cpu(), caution=1.0),
        ShardedScorer(model, 1, rows, "explained", cpu(), on_the_cpu(2), 1.0),
        CrossedScorer([(model, rows)], 1, "explained", cpu(), 1.0),
    ]
    expected = [scored_plainly([(model, rows)], 1, "explained", removed, 1.0) for removed in MASKS]
    for scorer in scorers:
        assert scorer.score_many(MASKS[1:]) == pytest.approx(expected[1:], abs=1e-6)


def test_a_key_names_the_caution():
    model, rows = tiny_model("bert", num_labels=2), random_rows(labels=2)
    keys = [LayerScorer(model, 1, rows, "explained", cpu(), caution=caution).key for caution in (0.0, 0.5, 1.0)]
    assert len(set(keys)) == 3
    assert keys[0] == LayerScorer(model, 1, rows, "explained", cpu()).key
    crossed = CrossedScorer([(model, rows)], 1, "explained", cpu(), 0.5)
    assert crossed.key == keys[1]


def test_one_row_has_no_noise():
    model, rows = tiny_model("bert", num_labels=1), random_rows(1, regression=True)
    scorer = LayerScorer(model, 1, rows, "r_squared", cpu(), caution=1.0)
    assert scorer.score((1,)) == 0


def test_a_metric_that_is_no_mean_over_rows():
    message = (
        r"^reward.caution must be 0 where rewards are changes of matthews, which is no mean over rows, found 0.5; "
        r"set reward.measure=smooth$"
    )
    with pytest.raises(ConfigError, match=message):
        LayerScorer(tiny_model("bert"), 1, random_rows(), "matthews", cpu(), caution=0.5)
