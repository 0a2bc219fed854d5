"""The rows of a split: one class for each task type, and the rules for texts, words and answers.

All classes are immutable columns of equal length with the same interface; the last column is
`labels`. A class label or tag is an index into the task's label names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from auber.errors import TaskError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class _Columns:
    """Base of the row classes: every field is a column, or None if the rows lack it."""

    kind: ClassVar[str]  # the name of the task type

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def texts(self) -> list[tuple[str, ...]]:
        """Return the texts of each row: all its columns but the last."""
        *columns, _ = vars(self).values()
        return list(zip(*(column for column in columns if column is not None), strict=True))

    def select(self, indices: Sequence[int]) -> Self:
        """Return the rows at these indices, in their order."""
        columns = vars(self).values()
        return type(self)(
            *(
                None if column is None else tuple(column[index] for index in indices)
                for column in columns
            )
        )


@dataclass(frozen=True)
class Rows(_Columns):
    """Labelled texts or pairs of texts; `second` is None if a row is one text."""

    kind: ClassVar[str] = "sequence"

    first: tuple[str, ...]
    second: tuple[str, ...] | None
    labels: tuple[int, ...] | tuple[float, ...]

    @classmethod
    def from_columns(
        cls, texts: Sequence[Iterable[str]], labels: Iterable[int] | Iterable[float]
    ) -> Rows:
        """Return rows of one or two columns of texts."""
        columns = [tuple(column) for column in texts]
        return cls(columns[0], columns[1] if len(columns) == 2 else None, tuple(labels))


@dataclass(frozen=True)
class WordRows(_Columns):
    """Sentences as words, each word with a tag."""

    kind: ClassVar[str] = "tokens"

    words: tuple[tuple[str, ...], ...]
    labels: tuple[tuple[int, ...], ...]  # the tags

    def texts(self) -> list[tuple[str, ...]]:
        """Return the words of each row."""
        return list(self.words)


class Answer(NamedTuple):
    """A piece of a context."""

    text: str
    start: int  # its first character


@dataclass(frozen=True)
class QuestionRows(_Columns):
    """Questions, each with a context and one or more answers in it, all of them right."""

    kind: ClassVar[str] = "spans"

    questions: tuple[str, ...]
    contexts: tuple[str, ...]
    labels: tuple[tuple[Answer, ...], ...]  # the answers


@dataclass(frozen=True, eq=False)
class TextRows(_Columns):
    """Texts, each with the vector that the unpruned model turns it into."""

    kind: ClassVar[str] = "embeddings"

    first: tuple[str, ...]
    labels: tuple[np.ndarray | None, ...]  # (dimensions,) each, float32; None until it is known


AnyRows = Rows | WordRows | QuestionRows | TextRows


def count_labels(rows: AnyRows) -> Counter[Any]:
    """Return how often each label or tag occurs; answers and vectors are not counted."""
    if isinstance(rows, QuestionRows | TextRows):
        return Counter()
    return Counter(rows.labels if isinstance(rows, Rows) else chain.from_iterable(rows.labels))


def check_text(text: str, where: str) -> None:
    """Raise `TaskError` if the text is empty or cannot be encoded."""
    if not text.strip():
        raise TaskError(f"{where}: the text is empty; fill it in or leave the row out")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TaskError(
            f"{where}: the text holds half a surrogate pair at character {error.start}; "
            "correct it or leave the row out"
        ) from error


def check_words(words: Sequence[str], tags: Sequence[Any], where: str) -> None:
    """Raise `TaskError` unless there are words, all non-empty, and one tag per word."""
    if len(words) != len(tags):
        raise TaskError(
            f"{where}: every word needs a tag, found {len(words)} words and {len(tags)} tags; "
            "correct the row"
        )
    if not words:
        raise TaskError(f"{where}: has no words; fill it in or leave the row out")
    for number, word in enumerate(words):
        check_text(word, f"{where}, word {number}")


def check_answers(answers: Sequence[Answer], context: str, where: str) -> None:
    """Raise `TaskError` unless there is an answer and the context contains each at its start."""
    if not answers:
        raise TaskError(
            f"{where}: has no answer; questions without one cannot be learned here, "
            "leave the row out"
        )
    for text, start in answers:
        check_text(text, f"{where}, answer")
        if not 0 <= start < len(context):
            raise TaskError(
                f"{where}: answer_start must be from 0 to {len(context) - 1}, a character of the "
                f"context, found {start}; correct it"
            )
        found = context[start : start + len(text)]
        if found != text:
            raise TaskError(
                f"{where}: the context has {found!r:.60} at answer_start {start}, the answer's "
                f"text is {text!r:.60}; correct one of them (characters count from 0)"
            )
