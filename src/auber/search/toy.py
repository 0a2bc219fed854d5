"""A made-up layer with a known optimum, for tests, examples and the default environment.

Its metric is a base plus one term for each removed head and one for each removed pair, drawn by
seed. If pair terms outweigh single terms, removals pay off only together, and a one-step greedy
search stops early.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from auber.search.game import FloatArray
from auber.search.methods import Mask
from auber.search.players.exhaustive import all_masks


class ToyLayer:
    """A layer of `num_heads` heads, deterministic by seed. All terms are in units of the metric.

    `single` and `pair` are the standard deviations of the terms, `bias` is the mean of the single
    terms (negative: most heads are useful). With `steps` > 0 the metric is rounded to a multiple of
    1 / steps, like an accuracy on that many rows.
    """

    def __init__(
        self,
        num_heads: int = 12,
        seed: int = 0,
        *,
        base: float = 0.8,
        bias: float = -0.012,
        single: float = 0.004,
        pair: float = 0.010,
        steps: int = 0,
    ) -> None:
        generator = np.random.default_rng(seed)
        self.num_heads = num_heads
        self._base = base
        self._steps = steps
        self._single = generator.normal(bias, single, num_heads)  # (num_heads,)
        pairs = generator.normal(0.0, pair, (num_heads, num_heads))
        self._pair: NDArray[np.float64] = np.triu(pairs, k=1)
        logits = generator.normal(0.0, 1.0, num_heads)
        softmax = np.exp(logits) / np.exp(logits).sum()
        self.state: FloatArray = softmax.astype(np.float32)  # (num_heads,)

    def score(self, removed: Mask) -> float:
        """Return the metric with these heads removed, within [0, 1]."""
        heads = list(removed)
        value = self._base + self._single[heads].sum() + self._pair[np.ix_(heads, heads)].sum()
        value = min(max(float(value), 0.0), 1.0)
        return round(value * self._steps) / self._steps if self._steps else value

    def optimum(self) -> tuple[Mask, float]:
        """Return the best of all masks that leave a head, and its metric.

        Of equal masks it is the one that removes the fewest heads.
        """
        best = max(all_masks(range(self.num_heads)), key=self.score)
        return best, self.score(best)
