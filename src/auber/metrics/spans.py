"""Answers as spans of tokens: the best one that the logits allow, and its overlap with true ones.

A span is legal if it lies within the context and has at most `LONGEST_ANSWER` tokens. The best is
the legal span with the largest sum of start and end logit, the first and shortest among equals.
Spans are compared by tokens. SQuAD's script compares normalised words (without articles,
punctuation and case), so its scores are a little higher. Of several true answers, the best match
counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

LONGEST_ANSWER = 30
NO_SPAN = -1


@dataclass(frozen=True)
class SpanTruth:
    """The true spans of packed rows."""

    places: Tensor  # (rows, width): the place of each token among all tokens; any beyond the row
    is_token: Tensor  # (rows, width)
    is_legal: Tensor  # (rows, width): whether the token belongs to the context
    spans: Tensor  # (rows, most answers, 2): first and last token within the row, or NO_SPAN

    def to(self, device: torch.device | str) -> SpanTruth:
        """Return a copy on the device."""
        return SpanTruth(*(part.to(device) for part in vars(self).values()))

    def unpack(self, logits: Tensor) -> Tensor:
        """Return packed logits (tokens, 2) as (2, rows, width) in float32, -inf at padding."""
        rows = logits.float()[self.places].movedim(-1, 0)
        return rows.masked_fill(~self.is_token, -torch.inf)


def best_spans(logits: Tensor, truth: SpanTruth) -> Tensor:
    """Return the first and the last token of each row's best legal span: (rows, 2)."""
    legal = truth.unpack(logits).masked_fill(~truth.is_legal, -torch.inf)
    starts, ends = legal.unbind(0)  # each (rows, width)
    best, reach = starts + ends, torch.zeros_like(truth.places)
    width = best.shape[1]
    # A context is contiguous, so every span between two of its tokens is legal. One pass for each
    # length needs little memory.
    for more in range(1, min(LONGEST_ANSWER, width)):
        sums = starts[:, : width - more] + ends[:, more:]
        better = sums > best[:, : width - more]
        best[:, : width - more] = torch.where(better, sums, best[:, : width - more])
        reach[:, : width - more].masked_fill_(better, more)
    first = best.argmax(1, keepdim=True)  # (rows, 1)
    return torch.cat((first, first + reach.gather(1, first)), dim=1)


def exact_counts(logits: Tensor, truth: SpanTruth) -> Tensor:
    """Return the number of rows with a correct best span, and of all rows: int64 (2,)."""
    hits = (best_spans(logits, truth)[:, None] == truth.spans).all(-1).any(-1)  # (rows,)
    return torch.stack((hits.sum(), torch.ones_like(hits).sum()))


def overlaps(logits: Tensor, truth: SpanTruth) -> Tensor:
    """Return the F1 of each row's best span: float64 (rows,)."""
    first, last = best_spans(logits, truth)[:, None].unbind(-1)  # each (rows, 1)
    true_first, true_last = truth.spans.unbind(-1)  # each (rows, answers)
    # NO_SPAN is before every token, so it overlaps none.
    shared = (torch.minimum(last, true_last) - torch.maximum(first, true_first) + 1).clamp(min=0)
    scores = 2 * shared.double() / ((last - first + 1) + (true_last - true_first + 1))
    return scores.amax(1)


def span_loss(logits: Tensor, truth: SpanTruth) -> Tensor:
    """Return the mean cross-entropy of start and end of each row's first true span, if any."""
    targets = truth.spans[:, 0]  # (rows, 2)
    losses = [
        F.cross_entropy(scores, targets[:, side], ignore_index=NO_SPAN, reduction="sum")
        for side, scores in enumerate(truth.unpack(logits))
    ]
    return (losses[0] + losses[1]) / 2 / (targets[:, 0] != NO_SPAN).sum().clamp(min=1)
