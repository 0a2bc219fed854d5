"""The scores of one layer's masks as a method asks for them: those the ledger knows, else computed; timed and counted."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

from auber.errors import ModelError
from auber.metrics.task_metrics import Metric, settle
from auber.run.ledger import Ledger
from auber.scoring import MaskScorer, standard_error
from auber.search.methods import Mask


class MeteredScorer:
    """A scorer behind the ledger; `seconds` is what all scores took, `known` holds each mask that was scored.

    `asked_for_noise` counts the scores that no method asked for, but caution did.
    """

    def __init__(self, scorer: MaskScorer, metric: Metric, ledger: Ledger) -> None:
        self._scorer, self._metric, self._ledger = scorer, metric, ledger
        self.seconds = 0.0
        self.asked_for_noise = 0
        self.known: dict[Mask, float] = {}

    def score_many(self, masks: Sequence[Mask]) -> list[float]:
        """The metric on the reward set for each of several sets of removed heads."""
        started = time.perf_counter()
        scores = self._ledger.complete(self._scorer.key, self._scorer.layer, masks, self._compute)
        self.seconds += time.perf_counter() - started
        self.known.update(zip(map(tuple, masks), scores, strict=True))
        return scores

    def noise_of_a_head(self) -> float:
        """The standard error of what removing a head gains; the scores behind it are remembered, most searches want them."""
        started = time.perf_counter()
        masks: list[Mask] = [(), *((head,) for head in self._scorer.present)]
        statistics = settle(self._scorer.statistics(masks))
        noise = standard_error(self._metric, statistics[0], statistics[1:])
        found = dict(zip(masks, self._metric.finish_all(statistics), strict=True))
        self._require_finite(found)
        scores = self._ledger.complete(
            self._scorer.key,
            self._scorer.layer,
            masks,
            lambda missing: [found[mask] for mask in missing],
        )
        self.known.update(zip(masks, scores, strict=True))
        self.asked_for_noise += len(masks)
        self.seconds += time.perf_counter() - started
        return noise

    def _compute(self, masks: list[Mask]) -> list[float]:
        scores = self._scorer.score_many(masks)
        self._require_finite(dict(zip(masks, scores, strict=True)))
        return scores

    def _require_finite(self, scores: Mapping[Mask, float]) -> None:
        """Nothing is better or worse than not a number, so that a search would take the mask or leave it by chance."""
        for removed, score in scores.items():
            if not math.isfinite(score):
                raise ModelError(
                    f"layer {self._scorer.layer}: the score with heads {list(removed)} removed must be a finite number, found {score}: "
                    "the model's weights are finite but too large to compute with; give lower learning rates, and as that is "
                    "another run, another --out"
                )
