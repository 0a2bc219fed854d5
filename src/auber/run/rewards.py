"""The scores of one layer's masks as a method asks for them: from the ledger or computed."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

from auber.errors import ModelError
from auber.metrics.task_metrics import settle
from auber.run.ledger import Ledger
from auber.scoring import MaskScorer, standard_error
from auber.search.methods import Mask


class MeteredScorer:
    """A scorer behind the ledger; it counts seconds and remembers the score of each mask."""

    def __init__(self, scorer: MaskScorer, ledger: Ledger) -> None:
        self._scorer, self._ledger = scorer, ledger
        self.seconds = 0.0
        self.asked_for_noise = 0  # scores that caution asked for, not the method
        self.known: dict[Mask, float] = {}

    def score_many(self, masks: Sequence[Mask]) -> list[float]:
        """Return the metric on the reward set for each set of removed heads."""
        started = time.perf_counter()
        scores = self._ledger.complete(self._scorer.key, self._scorer.layer, masks, self._compute)
        self.seconds += time.perf_counter() - started
        self.known.update(zip(map(tuple, masks), scores, strict=True))
        return scores

    def estimate_noise(self) -> float:
        """Return the standard error of the gain from removing one head.

        The scores behind it are stored, because most searches ask for them.
        """
        started = time.perf_counter()
        masks: list[Mask] = [(), *((head,) for head in self._scorer.present)]
        statistics = settle(self._scorer.statistics(masks))
        noise = standard_error(self._scorer.metric, statistics[0], statistics[1:])
        found = dict(zip(masks, self._scorer.metric.finish_all(statistics), strict=True))
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
        """Raise `ModelError` for NaN: no comparison with it is true, so chance would decide."""
        for removed, score in scores.items():
            if not math.isfinite(score):
                raise ModelError(
                    f"layer {self._scorer.layer}: the score with heads {list(removed)} removed "
                    f"must be a finite number, found {score}: the model's weights are finite but "
                    "too large to compute with; give lower learning rates, and as that is another "
                    "run, another --out"
                )
