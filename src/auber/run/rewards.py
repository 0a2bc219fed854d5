"""The scores of one layer's masks as a method asks for them: from the ledger or computed."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

from auber.errors import ModelError
from auber.metrics.task_metrics import settle
from auber.run.ledger import Ledger
from auber.scoring import MaskScorer, standard_errors
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

    def estimate_noise(self, start: Mask) -> dict[int, float]:
        """Return the standard error of the gain from changing each head of a mask.

        A change removes a head or puts it back. If that would leave no head, the largest error of
        the others is returned for it. If a mask and its change both score 0, the floor of the
        measure, there is no error to see, and 1 is returned. The scores behind the errors are
        stored, because most searches ask for them.
        """
        started = time.perf_counter()
        present = self._scorer.present
        changes = {head: tuple(sorted({*start} ^ {head})) for head in present}
        changes = {head: mask for head, mask in changes.items() if len(mask) < len(present)}
        masks: list[Mask] = [start, *changes.values()]
        statistics = settle(self._scorer.statistics(masks))
        errors = standard_errors(self._scorer.metric, statistics[0], statistics[1:])
        found = dict(zip(masks, self._scorer.metric.finish_all(statistics), strict=True))
        self._require_finite(found)
        if found[start] == 0:
            errors = [error or 1.0 for error in errors]
        of_heads = dict(zip(changes, errors, strict=True))
        noise = {head: of_heads.get(head, max(errors)) for head in present}
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
                    "run, another folder for --out"
                )
