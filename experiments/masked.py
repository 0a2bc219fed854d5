"""Rows scored under masks of one layer, each row by a model of its own choice: the tuned one, or a scout that never saw it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from auber.devices import Hardware
from auber.scoring import LayerScorer
from auber.tasks.encoding import EncodedRows
from experiments.subject import calibrated_rows, measure

Mask = tuple[int, ...]
Parts = list[tuple[Any, EncodedRows]]  # models, each with the rows it scores


class MaskedRows:
    """The measures of all parts together, under any mask of a layer."""

    def __init__(self, parts: Parts, layer: int, metric: str, hardware: Hardware) -> None:
        self._metric = metric
        self._scorers = [
            LayerScorer(model, layer, rows, metric, hardware, tenants=len(parts)) for model, rows in parts if len(rows)
        ]

    def score(self, name: str, removed: Mask) -> float:
        """One measure of one mask."""
        return float(self.scores([name], [removed])[0, 0])

    def scores(self, names: Sequence[str], masks: Sequence[Mask]) -> np.ndarray:
        """Several measures of several masks: (masks, measures)."""
        found = [
            torch.stack([measure(name, logits, labels, self._metric) for name in names])
            for logits, labels in self._passes(masks)
        ]
        return torch.stack(found).cpu().numpy()

    def noise_of_a_head(self, heads: Sequence[int]) -> float:
        """The standard error of what removing one head gains in calibrated log-likelihood, mean over the heads."""
        ((whole, labels),) = self._passes([()])
        unpruned = calibrated_rows(whole, labels)
        gains = [calibrated_rows(logits, labels) - unpruned for logits, _ in self._passes([(head,) for head in heads])]
        return float(torch.stack([gain.std() / len(gain) ** 0.5 for gain in gains]).mean())

    def _passes(self, masks: Sequence[Mask]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each mask the logits of all rows and their labels, in one order."""
        for start in range(0, len(masks), 32):
            some = list(masks[start : start + 32])
            by_scorer = [_logits(scorer, some) for scorer in self._scorers]
            labels = torch.cat([cast("Tensor", scorer._truth) for scorer in self._scorers])  # rows of classes
            for index in range(len(some)):
                yield torch.cat([logits[index] for logits in by_scorer]), labels


def _logits(scorer: LayerScorer, masks: Sequence[Mask]) -> Tensor:
    """What a scorer's statistics are made of: (masks, rows, classes)."""
    scorer._prepare()
    width = min(scorer._masks_per_pass(), len(masks))
    found = []
    for start in range(0, len(masks), width):
        some = list(masks[start : start + width])
        found.append(scorer._logits(some + [some[-1]] * (width - len(some)))[: len(some)].clone())
    return torch.cat(found)
