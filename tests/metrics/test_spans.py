from __future__ import annotations

import pytest
import torch

from auber.data.targets import Spans
from auber.metrics.spans import LONGEST_ANSWER, best_spans, span_loss
from auber.metrics.task_metrics import get_metric
from tests.kinds import random_kind_rows

CPU = torch.device("cpu")


def best_of(start, end, context):
    """Return the best legal span of one row, span by span."""
    first, last = context
    legal = [
        (i, j) for i in range(first, last + 1) for j in range(i, min(i + LONGEST_ANSWER, last + 1))
    ]
    return max(legal, key=lambda span: float(start[span[0]] + end[span[1]]))


def overlap(one, other):
    """Return the F1 of two spans as sets of tokens."""
    left, right = (set(range(span[0], span[1] + 1)) for span in (one, other))
    shared = len(left & right)
    precision, recall = shared / len(left), shared / len(right)
    return 2 * precision * recall / (precision + recall) if shared else 0.0


@pytest.mark.parametrize("seed", range(10))
def test_scores_equal_those_of_all_spans_tried(seed):
    rows = random_kind_rows("spans", 25, seed=seed)
    logits = torch.randn(sum(rows.lengths), 2, generator=torch.Generator().manual_seed(seed))
    truth, spans = rows.truth(CPU), rows.targets
    by_row = zip(logits.split(rows.lengths), spans.contexts, strict=True)
    expected = [best_of(piece[:, 0], piece[:, 1], context) for piece, context in by_row]
    assert best_spans(logits, truth).tolist() == [list(span) for span in expected]
    exact = sum(span in true for span, true in zip(expected, spans.spans, strict=True)) / len(rows)
    shared = sum(
        max((overlap(span, other) for other in true), default=0)
        for span, true in zip(expected, spans.spans, strict=True)
    )
    assert get_metric("span_exact").compute(logits, truth).item() == pytest.approx(exact)
    assert get_metric("span_f1").compute(logits, truth).item() == pytest.approx(shared / len(rows))


def test_an_answer_is_not_longer_than_the_limit():
    length = LONGEST_ANSWER + 12
    logits = torch.zeros(length, 2)
    logits[2, 0] = logits[length - 1, 1] = 5  # the best pair is too far apart
    logits[2 + LONGEST_ANSWER, 1] = 4  # one too far
    logits[1 + LONGEST_ANSWER, 1] = 3
    truth = Spans([[(2, 3)]], [(1, length - 1)]).truth([0], [length], CPU)
    assert best_spans(logits, truth).tolist() == [[2, 1 + LONGEST_ANSWER]]


def test_rows_without_an_answer_have_no_loss():
    logits = torch.randn(8, 2, generator=torch.Generator().manual_seed(0))
    answered, none = (Spans([spans], [(0, 3)]) for spans in ([(1, 2)], []))
    alone = span_loss(logits[:4], answered.truth([0], [4], CPU))
    both = Spans([[(1, 2)], []], [(0, 3), (0, 3)]).truth([0, 1], [4, 4], CPU)
    assert span_loss(logits, both).item() == pytest.approx(alone.item())
    assert span_loss(logits[4:], none.truth([0], [4], CPU)).item() == 0
