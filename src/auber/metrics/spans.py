"""Answers as spans of tokens: the best one a model's logits allow, and how it compares with the true ones.

A span is legal if it lies within the context and has at most `LONGEST_ANSWER` tokens; the best is the legal one of the
largest sum of start and end logit, the first and shortest among equals. Spans are compared token by token, not by their text
as SQuAD's script does (it drops articles and punctuation, ignores case, and counts words), so these scores are a little
lower than that script's. Of several true answers the best match counts.
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
    """The true spans of packed rows: their tokens one after the other, without padding."""

    places: Tensor  # (rows, width): where each token of a row lies among all tokens; anywhere behind the row's end
    is_token: Tensor  # (rows, width)
    is_legal: Tensor  # (rows, width): whether it is one of the context
    spans: Tensor  # (rows, most answers, 2): first and last token within the row, NO_SPAN where a row has fewer; at least one

    def to(self, device: torch.device | str) -> SpanTruth:
        """The same on a device."""
        parts = (self.places, self.is_token, self.is_legal, self.spans)
        return SpanTruth(*(part.to(device) for part in parts))

    def unpack(self, logits: Tensor) -> Tensor:
        """Start and end logits (2, rows, width) in float32 from packed ones (tokens, 2); minus infinity where no token is."""
        rows = logits.float()[self.places].movedim(-1, 0)
        return rows.masked_fill(~self.is_token, -torch.inf)


def best_spans(logits: Tensor, truth: SpanTruth) -> Tensor:
    """The first and last token of each row's best legal span: (rows, 2)."""
    starts, ends = (
        truth.unpack(logits).masked_fill(~truth.is_legal, -torch.inf).unbind(0)
    )  # each (rows, width)
    best, reach = starts + ends, torch.zeros_like(truth.places)
    width = best.shape[1]
    # The context is one piece, so a span between two of its tokens is legal; a pass for each length holds no more than that.
    for more in range(1, min(LONGEST_ANSWER, width)):
        sums = starts[:, : width - more] + ends[:, more:]
        better = sums > best[:, : width - more]
        best[:, : width - more] = torch.where(better, sums, best[:, : width - more])
        reach[:, : width - more].masked_fill_(better, more)
    first = best.argmax(1, keepdim=True)  # (rows, 1)
    return torch.cat((first, first + reach.gather(1, first)), dim=1)


def exact_counts(logits: Tensor, truth: SpanTruth) -> Tensor:
    """The rows whose best span is a true one, and all rows: int64 (2,)."""
    hits = (best_spans(logits, truth)[:, None] == truth.spans).all(-1).any(-1)  # (rows,)
    return torch.stack((hits.sum(), torch.ones_like(hits).sum()))


def overlaps(logits: Tensor, truth: SpanTruth) -> Tensor:
    """The F1 of each row's best and true span: float64 (rows,)."""
    first, last = best_spans(logits, truth)[:, None].unbind(-1)  # each (rows, 1)
    true_first, true_last = truth.spans.unbind(-1)  # each (rows, answers)
    # NO_SPAN lies before every token, so it shares none.
    shared = (torch.minimum(last, true_last) - torch.maximum(first, true_first) + 1).clamp(min=0)
    scores = 2 * shared.double() / ((last - first + 1) + (true_last - true_first + 1))
    return scores.amax(1)


def span_loss(logits: Tensor, truth: SpanTruth) -> Tensor:
    """The mean cross-entropy of the start and the end of each row's first true span; rows without one do not count."""
    starts, ends = truth.unpack(logits).unbind(0)
    targets = truth.spans[:, 0]  # (rows, 2)
    losses = [
        F.cross_entropy(scores, targets[:, side], ignore_index=NO_SPAN, reduction="sum")
        for side, scores in enumerate((starts, ends))
    ]
    return (losses[0] + losses[1]) / 2 / (targets[:, 0] != NO_SPAN).sum().clamp(min=1)
