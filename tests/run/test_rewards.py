"""Scores behind the ledger, and the noise of a head's removal."""

from __future__ import annotations

import pytest
import torch

from auber.errors import ModelError
from auber.metrics.task_metrics import get_metric
from auber.run.ledger import Ledger
from auber.run.rewards import MeteredScorer


class Scorer:
    """Knows the outputs for every mask, and remembers what it was asked."""

    key, layer, present = "key", 3, (0, 1, 2)
    metric = get_metric("r_squared")
    truth = outputs = torch.tensor([0.0, 1.0, 2.0, 3.0])

    def __init__(self):
        self.asked = []

    def score_many(self, masks):
        self.asked += masks
        return get_metric("r_squared").finish_all(self.statistics(masks))

    def statistics(self, masks):
        outputs = [
            self.outputs + torch.tensor([0.0, 0.1, 0.0, 0.2]) * sum(map(abs, mask))
            for mask in masks
        ]
        return torch.stack(
            [get_metric("r_squared").statistics(each, self.truth) for each in outputs]
        )


@pytest.fixture
def ledger(tmp_path):
    opened = Ledger(tmp_path / "scores.jsonl")
    yield opened
    opened.close()


def test_what_is_known_is_not_computed_and_all_of_it_is_counted(ledger):
    scorer = Scorer()
    ledger.complete("key", 3, [(1,)], lambda masks: [0.75])
    metered = MeteredScorer(scorer, ledger)
    of_both = get_metric("r_squared").finish_all(scorer.statistics([(0, 2)]))
    assert metered.score_many([(1,), (0, 2)]) == [0.75, *of_both]
    assert metered.score_many([(0, 2)]) == of_both
    assert scorer.asked == [(0, 2)]
    assert metered.known == {(1,): 0.75, (0, 2): of_both[0]}
    assert metered.seconds > 0


def test_scores_behind_the_noise_are_not_computed_again(ledger):
    scorer, metric = Scorer(), get_metric("r_squared")
    metered = MeteredScorer(scorer, ledger)
    rows = [metric.by_row(each) for each in scorer.statistics([(), (0,), (1,), (2,)])]
    errors = [float((gains - rows[0]).std() / 2) for gains in rows[1:]]  # of four rows
    assert metered.estimate_noise(()) == pytest.approx(dict(enumerate(errors)))
    assert metered.asked_for_noise == 4
    assert metered.score_many([(), (1,), (2,)]) == metric.finish_all(
        scorer.statistics([(), (1,), (2,)])
    )
    assert scorer.asked == []
    assert set(metered.known) == {(), (0,), (1,), (2,)}


def test_the_noise_is_that_of_changes_to_the_start(ledger):
    """Head 2 cannot go alone, because no other is left; it has the largest error of the others."""
    scorer, metric = Scorer(), get_metric("r_squared")
    rows = [metric.by_row(each) for each in scorer.statistics([(0, 1), (1,), (0,)])]
    errors = [float((gains - rows[0]).std() / 2) for gains in rows[1:]]
    found = MeteredScorer(scorer, ledger).estimate_noise((0, 1))
    assert found == pytest.approx({0: errors[0], 1: errors[1], 2: max(errors)})
    assert found[0] != found[1]


def test_a_change_at_the_floor_of_the_measure_counts_as_the_whole(ledger):
    """Outputs opposed to the truth explain nothing, with and without any head."""
    scorer = Scorer()
    scorer.outputs = -scorer.truth
    assert MeteredScorer(scorer, ledger).estimate_noise((1,)) == {0: 1.0, 1: 1.0, 2: 1.0}


def test_a_score_that_is_not_a_number_is_an_error_and_not_remembered(ledger):
    scorer = Scorer()
    metered = MeteredScorer(scorer, ledger)
    known = metered.score_many([(), (0,)])
    scorer.outputs = scorer.truth * torch.nan
    message = (
        r"^layer 3: the score with heads \[{}\] removed must be a finite number, found nan: "
        r"the model's weights are finite but too large "
        "to compute with; give lower learning rates, and as that is another run, another folder "
        "for --out$"
    )
    with pytest.raises(ModelError, match=message.format("1, 2")):
        metered.score_many([(0,), (1, 2)])
    with pytest.raises(ModelError, match=message.format("")):
        metered.estimate_noise(())
    assert len(ledger) == len(metered.known) == 2
    assert metered.score_many([(), (0,)]) == known, "what is known stays known"
