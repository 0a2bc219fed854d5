"""Your own questions: records as rows of kind spans.

A record has a question, a context, and answers: an object with the lists text and answer_start, or a list of objects with
these two, as SQuAD's own files have them. answer_start counts the characters of the context from 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from auber.data.readers import ReadSplit, Record
from auber.data.rows import Answer, QuestionRows, check_answers, check_text
from auber.errors import TaskError

_FORM = "an object with the lists text and answer_start"


def build_questions(
    read: ReadSplit, text: Sequence[str], label: str, names: Sequence[str] | None
) -> tuple[QuestionRows, QuestionRows, None]:
    """Both splits; answers have no names."""
    if names is not None:
        raise TaskError(
            "labels: answers are pieces of their context and have no names; leave labels out"
        )
    trained = _rows(read("train"), text, label)
    return trained, _rows(read("dev"), text, label), None


def _rows(records: Iterable[Record], text: Sequence[str], label: str) -> QuestionRows:
    questions, contexts, answers = [], [], []
    for where, fields in records:
        question, context = (
            _string(fields[column], f"{where}, column '{column}'") for column in text
        )
        found = _answers(fields[label], f"{where}, column '{label}'")
        check_answers(found, context, f"{where}, column '{label}'")
        questions.append(question)
        contexts.append(context)
        answers.append(tuple(dict.fromkeys(found)))  # several people often gave the same
    return QuestionRows(tuple(questions), tuple(contexts), tuple(answers))


def _string(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise TaskError(
            f"{where}: must be text, found {type(value).__name__} {value!r:.40}; correct it"
        )
    check_text(value, where)
    return value


def _answers(value: Any, where: str) -> list[Answer]:
    if isinstance(value, Mapping):
        texts, starts = value.get("text"), value.get("answer_start")
        if (
            not isinstance(texts, (list, tuple))
            or not isinstance(starts, (list, tuple))
            or len(texts) != len(starts)
        ):
            raise TaskError(
                f"{where}: {_FORM}, equally long, is needed, found {value!r:.60}; correct it"
            )
        pairs = list(zip(texts, starts, strict=True))
    elif isinstance(value, (list, tuple)) and all(isinstance(item, Mapping) for item in value):
        pairs = [(item.get("text"), item.get("answer_start")) for item in value]
    else:
        raise TaskError(
            f"{where}: {_FORM} is needed, found {type(value).__name__} {value!r:.40}; correct it"
        )
    for text, start in pairs:
        if not isinstance(text, str) or isinstance(start, bool) or not isinstance(start, int):
            raise TaskError(
                f"{where}: text must be text and answer_start a whole number, found {text!r:.40} and {start!r:.20}"
            )
    return [Answer(text, start) for text, start in pairs]
