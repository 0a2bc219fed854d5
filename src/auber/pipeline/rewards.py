"""The scores of one layer's masks as a method asks for them: those the ledger knows, else computed; timed and counted."""

from __future__ import annotations

import time
from collections.abc import Sequence

from auber.ledger import Ledger
from auber.scoring import CrossedScorer, LayerScorer, ShardedScorer


class MeteredScorer:
    """A scorer behind the ledger; `seconds` is what all scores took, `known` holds each mask that was asked for."""

    def __init__(self, scorer: LayerScorer | ShardedScorer | CrossedScorer, ledger: Ledger) -> None:
        self._scorer, self._ledger = scorer, ledger
        self.seconds = 0.0
        self.known: dict[tuple[int, ...], float] = {}

    def score_many(self, masks: Sequence[tuple[int, ...]]) -> list[float]:
        """The metric on the reward set for each of several sets of removed heads."""
        started = time.perf_counter()
        scores = self._ledger.complete(self._scorer.key, self._scorer.layer, masks, self._scorer.score_many)
        self.seconds += time.perf_counter() - started
        self.known.update(zip(map(tuple, masks), scores, strict=True))
        return scores
