from __future__ import annotations

import pytest

from auber.bench import rewards
from auber.bench.arithmetic import Work
from auber.bench.catalogue import Limits
from auber.bench.rewards import compare_rewards, random_masks
from auber.scoring import LayerScorer
from auber.system.progress import Progress

RATE = 1e10


@pytest.fixture(scope="module")
def record(subject):
    return compare_rewards(subject, (0, 1), RATE, Limits(repeats=4, seconds=30), Progress())


def test_the_ways_agree(record):
    for agreement in (record.low_precision_agreement, record.scorer_agreement):
        assert (agreement.masks, agreement.disagreements, agreement.predictions) == (4, 0, 160)
        assert agreement.largest_logit_difference < 1e-4
        assert agreement.largest_metric_difference < 1e-6
        assert agreement.logit_spread > 0.05


def test_ratios_and_shares_follow_from_the_times(subject, record):
    work = Work.of(subject.encoder, subject.rows.lengths)
    for layer in record.layers:
        assert layer.ratio == pytest.approx(record.plain.milliseconds / layer.milliseconds)
        assert layer.floor_milliseconds == pytest.approx(
            1000 * work.reward_flops(layer.layer) / RATE
        )
        assert layer.floor_share == pytest.approx(layer.floor_milliseconds / layer.milliseconds)
        assert layer.prepare_seconds > 0
        assert 2 <= layer.many <= 64
    taken = sum(layer.milliseconds for layer in record.layers)
    total = record.total
    assert total.ratio == pytest.approx(2 * record.plain.milliseconds / taken)
    assert total.low_precision_ratio == pytest.approx(2 * record.low_precision.milliseconds / taken)
    assert total.floor_share == pytest.approx(
        sum(layer.floor_milliseconds for layer in record.layers) / taken
    )
    assert total.prepare_seconds == pytest.approx(
        sum(layer.prepare_seconds for layer in record.layers)
    )
    assert (record.plain.passes, record.low_precision.passes) == (4, 4)
    assert record.plain.padding == "every row to 128"


def test_time_runs_out_after_one_pass(subject):
    record = compare_rewards(subject, (1,), RATE, Limits(repeats=3, seconds=1e-6), Progress())
    assert (record.plain.passes, record.low_precision.passes) == (1, 1)
    assert record.scorer_agreement.masks == 1
    assert record.layers[0].many == 1
    assert record.layers[0].many_milliseconds == record.layers[0].milliseconds


def test_a_scorer_that_errs_is_found_out(subject, monkeypatch):
    class Upside(LayerScorer):
        """Gives every row the other answer."""

        def logits(self, removed):
            return -super().logits(removed)

    monkeypatch.setattr(rewards, "LayerScorer", Upside)
    agreement = compare_rewards(subject, (0,), RATE, Limits(2, 30), Progress()).scorer_agreement
    assert agreement.disagreements == 80
    assert agreement.largest_logit_difference > 0.1


def test_masks_keep_a_head_and_depend_on_seed_and_layer():
    masks = random_masks([1, 4, 5, 7], 50, 0, 3)
    assert {len(mask) for mask in masks} == {1, 2, 3}
    assert all(set(mask) < {1, 4, 5, 7} and list(mask) == sorted(mask) for mask in masks)
    assert masks == random_masks([1, 4, 5, 7], 50, 0, 3)
    assert masks != random_masks([1, 4, 5, 7], 50, 0, 2)
    assert random_masks([2], 2, 0, 0) == [(), ()]
