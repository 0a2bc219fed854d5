"""The targets of encoded rows: one class for each task type.

`features` gives what a loss takes for one row, `truth` what a metric takes for many rows, and
`digest` the bytes of all targets.
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

Span = tuple[int, int]  # the first and the last token, counted within the row
IGNORED = -100  # a position that a loss leaves out


@dataclass(frozen=True)
class Labels:
    """One class or number per row."""

    kind: ClassVar[str] = "sequence"

    labels: Tensor  # (rows,), int64 classes or float32 targets

    def select(self, indices: Sequence[int]) -> Labels:
        """Return the targets of the rows at these indices."""
        return Labels(self.labels[torch.as_tensor(indices, dtype=torch.int64)])

    def features(self, row: int) -> dict[str, Any]:
        """Return what a loss takes: a number."""
        return {"labels": self.labels[row].item()}

    def truth(self, order: Sequence[int], lengths: Sequence[int], device: torch.device) -> Truth:
        """Return the labels of the rows in this order."""
        return self.labels[torch.tensor(order, dtype=torch.int64)].to(device)

    def digest(self) -> Iterator[bytes]:
        """Yield the bytes of all labels."""
        dtype = "<f4" if self.labels.is_floating_point() else "<i8"
        yield self.labels.numpy().astype(dtype).tobytes()


@dataclass(frozen=True)
class Tags:
    """A tag for each word, at its first token."""

    kind: ClassVar[str] = "tokens"

    tags: Sequence[Sequence[int]]  # of each token of each row; NO_TAG if it is no word's first
    scheme: Scheme | None  # None if the tags do not follow IOB2

    def select(self, indices: Sequence[int]) -> Tags:
        """Return the targets of the rows at these indices."""
        return Tags([self.tags[index] for index in indices], self.scheme)

    def features(self, row: int) -> dict[str, Any]:
        """Return what a loss takes: a tag for each token."""
        return {"labels": self.tags[row]}

    def truth(self, order: Sequence[int], lengths: Sequence[int], device: torch.device) -> Truth:
        """Return the tags of the words of the rows in this order, with their tokens packed."""
        tags = np.array([tag for row in order for tag in self.tags[row]], np.int64)
        rows = np.repeat(np.arange(len(order)), [lengths[row] for row in order])
        (places,) = np.nonzero(tags != NO_TAG)  # (words,)
        firsts = np.ones(len(places), bool)
        firsts[1:] = rows[places[1:]] != rows[places[:-1]]
        scheme = self.scheme
        return TagTruth(
            torch.from_numpy(places),
            torch.from_numpy(tags[places]),
            torch.from_numpy(firsts),
            None if scheme is None else torch.tensor(scheme.types),
            None if scheme is None else torch.tensor(scheme.begins),
        ).to(device)

    def digest(self) -> Iterator[bytes]:
        """Yield the bytes of all tags and of their meaning."""
        yield repr(self.scheme).encode()
        for tags in self.tags:
            yield np.asarray(tags, "<i8").tobytes()


@dataclass(frozen=True)
class Spans:
    """The spans of tokens that answer each question; none if the answers were cut off."""

    kind: ClassVar[str] = "spans"

    spans: Sequence[Sequence[Span]]
    contexts: Sequence[Span]  # the tokens that a span may consist of

    def select(self, indices: Sequence[int]) -> Spans:
        """Return the targets of the rows at these indices."""
        spans, contexts = self.spans, self.contexts
        return Spans([spans[index] for index in indices], [contexts[index] for index in indices])

    def features(self, row: int) -> dict[str, Any]:
        """Return what a loss takes: start and end of the first span."""
        start, end = self.spans[row][0] if self.spans[row] else (IGNORED, IGNORED)
        return {"start_positions": start, "end_positions": end}

    def truth(self, order: Sequence[int], lengths: Sequence[int], device: torch.device) -> Truth:
        """Return the spans of the rows in this order, and the places of their packed tokens."""
        sizes = np.array([lengths[row] for row in order], np.int64)
        starts = np.cumsum(sizes) - sizes  # (rows,)
        positions = np.arange(max(sizes, default=1))[None]  # (1, width)
        is_token = positions < sizes[:, None]
        contexts = np.array([self.contexts[row] for row in order], np.int64).reshape(-1, 2)
        is_legal = (positions >= contexts[:, :1]) & (positions <= contexts[:, 1:])
        most = max((len(self.spans[row]) for row in order), default=1) or 1
        spans = np.full((len(order), most, 2), NO_SPAN, np.int64)
        for place, row in enumerate(order):
            spans[place, : len(self.spans[row])] = np.array(self.spans[row]).reshape(-1, 2)
        places = np.where(is_token, starts[:, None] + positions, 0)
        parts = (places, is_token, is_legal, spans)
        return SpanTruth(*(torch.from_numpy(part) for part in parts)).to(device)

    def digest(self) -> Iterator[bytes]:
        """Yield the bytes of all spans."""
        for spans, context in zip(self.spans, self.contexts, strict=True):
            sides = [side for span in spans for side in span]
            yield np.asarray([len(spans), *context, *sides], "<i8").tobytes()


@dataclass(frozen=True)
class Vectors:
    """The vector of each row, as the unpruned model computes it."""

    kind: ClassVar[str] = "embeddings"

    vectors: Tensor  # (rows, dimensions), float32

    def select(self, indices: Sequence[int]) -> Vectors:
        """Return the targets of the rows at these indices."""
        return Vectors(self.vectors[torch.as_tensor(indices, dtype=torch.int64)])

    def features(self, row: int) -> dict[str, Any]:
        """Return what a loss takes: a vector."""
        return {"labels": self.vectors[row].numpy()}

    def truth(self, order: Sequence[int], lengths: Sequence[int], device: torch.device) -> Truth:
        """Return the vectors of the rows in this order."""
        return self.vectors[torch.tensor(order, dtype=torch.int64)].to(device)

    def digest(self) -> Iterator[bytes]:
        """Yield the bytes of all vectors."""
        yield self.vectors.numpy().astype("<f4").tobytes()


AnyTargets = Labels | Tags | Spans | Vectors
