"""Texts: rows without labels, which the unpruned model answers itself.

The type of task follows from the model: one or two columns of texts for a classifier or a model
with one output, one column of them for a sentence encoder, a column of words for a tagger, question
and context for a model that finds answers. `auber.run.answers` replaces the placeholders of
`Texts.as_task` by the model's answers.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from auber.data.files import ColumnError
from auber.data.rows import AnyRows, QuestionRows, Rows, TextRows, WordRows, check_words
from auber.data.task import TaskData
from auber.data.task_types import TaskType
from auber.data.user_rows import (
    DEV_SHARE,
    OWN,
    Source,
    check_name,
    read_source,
    read_strings,
    read_text,
    to_plain,
)
from auber.errors import TaskError

logger = logging.getLogger(__name__)

FEWEST = 100  # a fifth of them is measured on


@dataclass(frozen=True)
class Texts:
    """Different rows without labels."""

    name: str
    columns: tuple[tuple[Any, ...], ...]  # one or two of texts, or one of lists of words
    groups: tuple[str, ...] | None = None  # of each row, such as its query

    def __len__(self) -> int:
        return len(self.columns[0])

    def as_task(
        self, task_type: TaskType, label_names: tuple[str, ...] | None, metric: str
    ) -> TaskData:
        """Return a task with placeholders for labels; a fifth of the rows is set aside as dev.

        The placeholder of a tag is the number of its word, which finds the word's token.
        """
        # Import numpy, which `auber list` does without.
        from auber.data.splits import set_aside_texts

        rows = self.make_rows(task_type, is_number=label_names is None)
        train, dev = set_aside_texts(rows, self.groups, DEV_SHARE)
        groups = None if self.groups is None else tuple(self.groups[row] for row in dev)
        return TaskData(
            self.name,
            rows.select(train),
            rows.select(dev),
            label_names,
            metric,
            is_answered=True,
            groups=groups,
        )

    def make_rows(self, task_type: TaskType, *, is_number: bool = False) -> AnyRows:
        """Return the texts as rows of a task type, with placeholders for labels."""
        columns = self.columns
        has_words = not isinstance(columns[0][0], str)
        fits = {
            "sequence": not has_words,
            "tokens": has_words,
            "spans": not has_words and len(columns) == 2,
            "embeddings": not has_words and len(columns) == 1,
        }
        if not fits[task_type.name]:
            needs = {
                "sequence": "one or two columns of texts",
                "tokens": "one column of lists of words (jsonl or conll)",
                "spans": "a column of questions and one of contexts",
                "embeddings": "one column of texts",
            }[task_type.name]
            found = "lists of words" if has_words else f"{len(columns)} of texts"
            raise TaskError(
                f"texts {self.name}: a model ...{task_type.ending} needs {needs}, found {found}; "
                f"name the columns with --text, by default {','.join(task_type.text)}"
            )
        if task_type.name == "tokens":
            return WordRows(columns[0], tuple(tuple(range(len(words))) for words in columns[0]))
        if task_type.name == "spans":
            return QuestionRows(columns[0], columns[1], ((),) * len(self))
        if task_type.name == "embeddings":
            return TextRows(columns[0], (None,) * len(self))
        return Rows.from_columns(columns, [0.0 if is_number else 0] * len(self))


def make_texts(
    source: Source,
    *,
    text: str | Sequence[str] | None = None,
    group: str | None = None,
    name: str = OWN,
) -> Texts:
    """Return texts to prune a model with; `source` is a file, or rows as mappings.

    `text` names the columns, by default `text`: one, or two for pairs or for question and context.
    A tagger needs lists of words. `group` names the column of what rows belong to, such as the
    query of a cross-encoder: rows of a group stay on one side of the split into rows to tune on and
    rows to measure on. Rows that repeat another one are left out.
    `name` is used in reports, which take runs of the same name for runs of the same rows.
    """
    check_name(name)
    names = (text,) if isinstance(text, str) else tuple(text or ("text",))
    if len(names) not in (1, 2) or len(set(names)) < len(names):
        raise TaskError(
            f"columns: one or two text columns are needed, found {', '.join(names) or '(none)'}; "
            "name them with --text"
        )
    wanted = tuple(dict.fromkeys((*names, *(() if group is None else (group,)))))
    rows: dict[tuple[Any, ...], None] = {}
    number = 0
    try:
        where, records = read_source(source, "texts", wanted)
        for place, fields in records:
            number += 1
            values = [_read_value(fields[name], f"{place}, column '{name}'") for name in names]
            own = None if group is None else _read_group(fields[group], f"{place}, '{group}'")
            rows[*values, own] = None
    except ColumnError as error:
        option = "--group" if error.column == group else "--text"
        raise TaskError(f"{error}; name it with {option}") from error
    if len(rows) < FEWEST:
        raise TaskError(
            f"{where}: at least {FEWEST} different texts are needed, found {len(rows)}; give more"
        )
    if len(rows) < number:
        logger.warning(
            "%s: %d of %d rows repeat another row and are left out",
            where,
            number - len(rows),
            number,
        )
    *columns, groups = zip(*rows, strict=True)
    kinds = {type(value) for column in columns for value in column}
    if len(kinds) > 1 or (len(columns) > 1 and tuple in kinds):
        raise TaskError(
            f"{where}: columns {', '.join(names)} must be texts, or one of them lists of words, "
            "found both; correct the rows, or name others with --text"
        )
    return Texts(name, tuple(columns), None if group is None else groups)


def _read_value(value: Any, where: str) -> str | tuple[str, ...]:
    value = to_plain(value)
    if not isinstance(value, (list, tuple)):
        return read_text(value, where)
    words = read_strings(value, where)
    check_words(words, words, where)
    return words


def _read_group(value: Any, where: str) -> str:
    value = to_plain(value)
    if value is None or not str(value).strip():
        raise TaskError(f"{where}: the group is empty; fill it in or leave the row out")
    return str(value)
