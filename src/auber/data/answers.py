"""What a model should answer to encoded rows, one class a kind of task.

Each knows three forms of the same: `features` is what a loss takes of one row, `truth` what a metric takes of many, and
`digest` their bytes. `AnyAnswers` is whichever a task has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from auber.metrics.spans import NO_SPAN, SpanTruth
from auber.metrics.tags import NO_TAG, Scheme, TagTruth
from auber.metrics.task_metrics import Truth

Span = tuple[int, int]  # the first and the last token of a row's own
IGNORED = -100  # a position that a loss leaves out


@dataclass(frozen=True)
class Labels:
    """One class or number a row."""

    kind: ClassVar[str] = "sequence"

    labels: Tensor  # (rows,), int64 classes or float32 targets

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, indices: Sequence[int]) -> Labels:
        """Those of the rows at these indices."""
        return Labels(self.labels[torch.as_tensor(indices, dtype=torch.int64)])

    def features(self, row: int) -> dict[str, Any]:
        """What a loss takes: a number."""
        return {"labels": self.labels[row].item()}

    def truth(self, order: Sequence[int], lengths: Sequence[int], device: torch.device) -> Truth:
        """The labels of the rows in this order."""
        return self.labels[torch.tensor(order, dtype=torch.int64)].to(device)

    def digest(self) -> Iterator[bytes]:
        """The bytes of all labels."""
        yield (
            self.labels.numpy()
            .astype("<f4" if self.labels.is_floating_point() else "<i8")
            .tobytes()
        )


@dataclass(frozen=True)
class Tags:
    """A tag for each word, at its first token."""

    kind: ClassVar[str] = "tokens"

    tags: Sequence[Sequence[int]]  # of each token of each row; NO_TAG where it is no word's first
    scheme: Scheme | None  # None where the tags follow none

    def __len__(self) -> int:
        return len(self.tags)

    def select(self, indices: Sequence[int]) -> Tags:
        """Those of the rows at these indices."""
        return Tags([self.tags[index] for index in indices], self.scheme)

    def features(self, row: int) -> dict[str, Any]:
        """What a loss takes: a tag for each token."""
        return {"labels": self.tags[row]}

    def truth(self, order: Sequence[int], lengths: Sequence[int], device: torch.device) -> Truth:
        """The tags of the words of the rows in this order, their tokens one after the other."""
        tags = np.array([tag for row in order for tag in self.tags[row]], np.int64)
        rows = np.repeat(np.arange(len(order)), [lengths[row] for row in order])
        (places,) = np.nonzero(tags != NO_TAG)  # (words,)
        firsts = np.ones(len(places), bool)
        firsts[1:] = rows[places[1:]] != rows[places[:-1]]
        types, begins = (
            (None, None)
            if self.scheme is None
            else map(torch.tensor, (self.scheme.types, self.scheme.begins))
        )
        truth = TagTruth(
            torch.from_numpy(places),
            torch.from_numpy(tags[places]),
            torch.from_numpy(firsts),
            types,
            begins,
        )
        return truth.to(device)

    def digest(self) -> Iterator[bytes]:
        """The bytes of all tags, and of what they mean."""
        yield repr(self.scheme).encode()
        for tags in self.tags:
            yield np.asarray(tags, "<i8").tobytes()


@dataclass(frozen=True)
class Spans:
    """The tokens that answer a question: any of several spans, or none where the answers lie behind a row's end."""

    kind: ClassVar[str] = "spans"

    spans: Sequence[Sequence[Span]]
    contexts: Sequence[Span]  # the tokens a span may be made of

    def __len__(self) -> int:
        return len(self.spans)

    def select(self, indices: Sequence[int]) -> Spans:
        """Those of the rows at these indices."""
        return Spans(
            [self.spans[index] for index in indices], [self.contexts[index] for index in indices]
        )

    def features(self, row: int) -> dict[str, Any]:
        """What a loss takes: start and end of the first span."""
        start, end = self.spans[row][0] if self.spans[row] else (IGNORED, IGNORED)
        return {"start_positions": start, "end_positions": end}

    def truth(self, order: Sequence[int], lengths: Sequence[int], device: torch.device) -> Truth:
        """The spans of the rows in this order, and where their tokens lie one after the other."""
        sizes = np.array([lengths[row] for row in order], np.int64)
        starts = np.cumsum(sizes) - sizes  # (rows,)
        positions = np.arange(max(sizes, default=1))[None]  # (1, width)
        is_token = positions < sizes[:, None]
        contexts = np.array([self.contexts[row] for row in order], np.int64).reshape(-1, 2)
        is_legal = (positions >= contexts[:, :1]) & (positions <= contexts[:, 1:])
        spans = np.full(
            (len(order), max((len(self.spans[row]) for row in order), default=1) or 1, 2),
            NO_SPAN,
            np.int64,
        )
        for place, row in enumerate(order):
            spans[place, : len(self.spans[row])] = np.array(self.spans[row], np.int64).reshape(
                -1, 2
            )
        places = np.where(is_token, starts[:, None] + positions, 0)
        return SpanTruth(
            *(torch.from_numpy(part) for part in (places, is_token, is_legal, spans))
        ).to(device)

    def digest(self) -> Iterator[bytes]:
        """The bytes of all spans."""
        for spans, context in zip(self.spans, self.contexts, strict=True):
            yield np.asarray(
                [len(spans), *context, *(side for span in spans for side in span)], "<i8"
            ).tobytes()


AnyAnswers = Labels | Tags | Spans
