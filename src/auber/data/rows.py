"""The rows of a split, one class a kind of task, and what must hold of each row.

All are values of the same shape to the outside: `texts` and `labels` say what stands in each row, `select` takes some of
them, and `check` raises a `TaskError` for the first that cannot be used. A class label or tag is an index into the names of
the task's labels.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from auber.errors import TaskError

LabelNames = tuple[str, ...] | None


@dataclass(frozen=True)
class Rows:
    """Labelled sentences or pairs of sentences; `second` is None where a row is one sentence."""

    kind: ClassVar[str] = "sequence"

    first: tuple[str, ...]
    second: tuple[str, ...] | None
    labels: tuple[int, ...] | tuple[float, ...]

    def __post_init__(self) -> None:
        second = len(self.first) if self.second is None else len(self.second)
        if not len(self.first) == second == len(self.labels):
            raise TaskError(
                f"rows: texts and labels must be equally many, found {len(self.first)} first texts, "
                f"{second} second texts and {len(self.labels)} labels"
            )

    def __len__(self) -> int:
        return len(self.first)

    def select(self, indices: Sequence[int]) -> Rows:
        """The rows at these indices, in their order."""
        second = None if self.second is None else tuple(self.second[index] for index in indices)
        labels = tuple(self.labels[index] for index in indices)
        return Rows(tuple(self.first[index] for index in indices), second, labels)

    def texts(self) -> list[tuple[str, ...]]:
        """The texts of each row: one or two."""
        return (
            list(zip(self.first))
            if self.second is None
            else list(zip(self.first, self.second, strict=True))
        )

    def count_labels(self) -> Counter[Any]:
        """How often each label stands in the rows."""
        return Counter(self.labels)

    def check(self, where: str, label_names: LabelNames) -> None:
        """Raise `TaskError` unless every row can be used."""
        for row, (texts, label) in enumerate(zip(self.texts(), self.labels, strict=True)):
            for text in texts:
                check_text(text, f"{where} row {row}")
            if label_names is not None:
                _check_class(label, label_names, f"{where} row {row}: the label")
            elif not math.isfinite(label):
                raise TaskError(
                    f"{where} row {row}: the target must be a finite number, found {label}; correct it"
                )


@dataclass(frozen=True)
class WordRows:
    """Sentences as words, each with a tag."""

    kind: ClassVar[str] = "tokens"

    words: tuple[tuple[str, ...], ...]
    tags: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if len(self.words) != len(self.tags):
            raise TaskError(
                f"rows: lists of words and of tags must be equally many, found {len(self.words)} and {len(self.tags)}"
            )

    def __len__(self) -> int:
        return len(self.words)

    @property
    def labels(self) -> tuple[Any, ...]:
        """The tags of each row."""
        return self.tags

    def select(self, indices: Sequence[int]) -> WordRows:
        """The rows at these indices, in their order."""
        return WordRows(
            tuple(self.words[index] for index in indices),
            tuple(self.tags[index] for index in indices),
        )

    def texts(self) -> list[tuple[str, ...]]:
        """The words of each row."""
        return list(self.words)

    def count_labels(self) -> Counter[Any]:
        """How often each tag stands at a word."""
        return Counter(tag for tags in self.tags for tag in tags)

    def check(self, where: str, label_names: LabelNames) -> None:
        """Raise `TaskError` unless every row can be used."""
        if label_names is None:
            raise TaskError(f"{where}: tagged words need the names of their tags; give label_names")
        for row, (words, tags) in enumerate(zip(self.words, self.tags, strict=True)):
            check_words(words, tags, f"{where} row {row}")
            for number, tag in enumerate(tags):
                _check_class(tag, label_names, f"{where} row {row}, word {number}: the tag")


class Answer(NamedTuple):
    """A piece of a context."""

    text: str
    start: int  # the character it begins at


@dataclass(frozen=True)
class QuestionRows:
    """Questions, each with a context and the pieces of it that answer; any of several is right."""

    kind: ClassVar[str] = "spans"

    questions: tuple[str, ...]
    contexts: tuple[str, ...]
    answers: tuple[tuple[Answer, ...], ...]

    def __post_init__(self) -> None:
        if not len(self.questions) == len(self.contexts) == len(self.answers):
            raise TaskError(
                f"rows: questions, contexts and answers must be equally many, found {len(self.questions)}, "
                f"{len(self.contexts)} and {len(self.answers)}"
            )

    def __len__(self) -> int:
        return len(self.questions)

    @property
    def labels(self) -> tuple[Any, ...]:
        """The answers of each row."""
        return self.answers

    def select(self, indices: Sequence[int]) -> QuestionRows:
        """The rows at these indices, in their order."""
        columns = (self.questions, self.contexts, self.answers)
        questions, contexts, answers = (
            tuple(column[index] for index in indices) for column in columns
        )
        return QuestionRows(questions, contexts, answers)  # type: ignore[arg-type]

    def texts(self) -> list[tuple[str, ...]]:
        """The question and the context of each row."""
        return list(zip(self.questions, self.contexts, strict=True))

    def count_labels(self) -> Counter[Any]:
        """Nothing: answers are no classes."""
        return Counter()

    def check(self, where: str, label_names: LabelNames) -> None:
        """Raise `TaskError` unless every row can be used."""
        if label_names is not None:
            raise TaskError(
                f"{where}: answers are pieces of their context and have no names; leave label_names out"
            )
        for row, (question, context) in enumerate(self.texts()):
            check_text(question, f"{where} row {row}, question")
            check_text(context, f"{where} row {row}, context")
            check_answers(self.answers[row], context, f"{where} row {row}")


AnyRows = Rows | WordRows | QuestionRows


def check_text(text: str, where: str) -> None:
    """Raise `TaskError` unless the text holds something a tokenizer can read."""
    if not text.strip():
        raise TaskError(f"{where}: the text is empty; fill it in or leave the row out")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TaskError(
            f"{where}: the text holds half a surrogate pair at character {error.start}; correct it or leave the row out"
        ) from error


def check_words(words: Sequence[str], tags: Sequence[Any], where: str) -> None:
    """Raise `TaskError` unless there are words, none of them empty, and a tag for each."""
    if len(words) != len(tags):
        raise TaskError(
            f"{where}: every word needs a tag, found {len(words)} words and {len(tags)} tags; correct the row"
        )
    if not words:
        raise TaskError(f"{where}: has no words; fill it in or leave the row out")
    for number, word in enumerate(words):
        check_text(word, f"{where}, word {number}")


def check_answers(answers: Sequence[Answer], context: str, where: str) -> None:
    """Raise `TaskError` unless there is an answer, and each stands in the context where it says."""
    if not answers:
        raise TaskError(
            f"{where}: has no answer; questions without one cannot be learned here, leave the row out"
        )
    for text, start in answers:
        check_text(text, f"{where}, answer")
        if not 0 <= start < len(context):
            raise TaskError(
                f"{where}: answer_start must be from 0 to {len(context) - 1}, a character of the context, found {start}; "
                "correct it"
            )
        found = context[start : start + len(text)]
        if found != text:
            raise TaskError(
                f"{where}: the context has {found!r:.60} at answer_start {start}, the answer's text is {text!r:.60}; "
                "correct one of them (characters count from 0)"
            )


def _check_class(label: float, label_names: Sequence[str], what: str) -> None:
    if not 0 <= label < len(label_names):
        raise TaskError(
            f"{what} must be from 0 to {len(label_names) - 1}, found {label}; correct it"
        )
