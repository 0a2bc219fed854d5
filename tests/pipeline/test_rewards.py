from __future__ import annotations

from auber.ledger import Ledger
from auber.pipeline.rewards import MeteredScorer


class Scorer:
    """Knows the score of every mask, and remembers what it was asked."""

    key, layer = "key", 3

    def __init__(self):
        self.asked = []

    def score_many(self, masks):
        self.asked += masks
        return [len(mask) / 4 for mask in masks]


def test_what_is_known_is_not_computed_and_all_of_it_is_counted(tmp_path):
    scorer, ledger = Scorer(), Ledger(tmp_path / "scores.jsonl")
    ledger.add("key", 3, (1,), 0.75)
    metered = MeteredScorer(scorer, ledger)
    assert metered.score_many([(1,), (0, 2)]) == [0.75, 0.5]
    assert metered.score_many([(0, 2)]) == [0.5]
    assert scorer.asked == [(0, 2)]
    assert metered.known == {(1,): 0.75, (0, 2): 0.5}
    assert metered.seconds > 0
    ledger.close()
