"""Make tasks of your own rows: files, or records in memory, of every task type.

Classes may be words or numbers. They are sorted, by value if all are whole numbers. A regression
metric reads the labels as numbers. Words have a list of tags, which are numbered as `sort_tags`
orders them. Questions have answers in the form of SQuAD. Every problem is a `TaskError` that names
the file and the line.
"""

from __future__ import annotations

import logging
import math
import re
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from auber.data.files import ColumnError, Record, check_records, read_records
from auber.data.rows import (
    Answer,
    AnyRows,
    QuestionRows,
    Rows,
    WordRows,
    check_answers,
    check_text,
    check_words,
)
from auber.data.task import TaskData, check_task
from auber.data.task_types import TASK_TYPES, TaskType, get_task_type
from auber.errors import TaskError, shorten

logger = logging.getLogger(__name__)

OWN = "own"  # the name of rows without a name
DEV_SHARE = 0.2  # of train, if there are no dev rows
USUAL_CLASSES = 10  # at most, of a task whose classes are numbers
_FEW_ROWS = 5  # of a class

# A file, or rows such as dicts or a datasets.Dataset.
Source = str | Path | Iterable[Mapping[str, Any]]


def make_task(
    train: Source,
    dev: Source | None = None,
    *,
    kind: str | None = None,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    labels: str | Sequence[str] | None = None,
    metric: str | None = None,
    name: str = OWN,
) -> TaskData:
    """Return a task of your own rows; `train` and `dev` are files, or rows as mappings.

    Without `dev`, a fifth of the rows of train is set aside as dev: always the same rows, each
    class in its share, and rows with a text in common together.
    `kind` is sequence, tokens or spans. By default it is the one that `metric` scores, or sequence.
    `text` and `label` name the columns: text (or two for pairs) and label; tokens and tags;
    question, context and answers.
    `labels` fixes the names and the order of classes or tags, as a fine-tuned model may need: a
    sequence, or one text with commas; by default they are those of train.
    `metric` is accuracy, entity_f1 or span_f1 by default; pearson, spearman and r_squared make it a
    regression.
    `name` is used in reports, which take runs of the same name for runs of the same rows.
    """
    check_name(name)
    return check_task(read_task(name, train, dev, kind, text, label, split_names(labels), metric))


def check_name(name: str) -> None:
    """Raise `TaskError` unless rows can be named so."""
    from auber.data import TASKS  # which imports this module

    if name in TASKS or not name.isprintable() or name != name.strip() or not name:
        raise TaskError(
            "name: must be a word or more, and none of a known task "
            f"({', '.join(TASKS)}), found {name!r:.40}; choose another"
        )


def split_names(names: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return names that are separated by commas as a tuple; None if there are none."""
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",")]
    return tuple(names) if names else None


def read_task(
    name: str,
    train: Source,
    dev: Source | None,
    kind: str | None = None,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    labels: Sequence[str] | None = None,
    metric: str | None = None,
) -> TaskData:
    """Return a task with each row checked, but not whether a model can be trained on them."""
    # Import numpy and torch, which `auber list` does without.
    from auber.data.splits import set_aside
    from auber.metrics.task_metrics import get_metric

    task_type = get_task_type(kind or (get_metric(metric).kind if metric else "sequence"))
    if not task_type.label:
        raise TaskError(
            f"kind {task_type.name}: its labels are the unpruned model's vectors and no column of "
            "a file; give texts alone to 'auber prune --texts'"
        )
    chosen = get_metric(metric or task_type.metric)
    if chosen.kind != task_type.name:
        raise TaskError(
            f"metric {chosen.name} scores rows of kind {chosen.kind}, found kind {task_type.name}; "
            "give one that fits, or leave one of the two out"
        )
    columns = (text,) if isinstance(text, str) else tuple(task_type.text if text is None else text)
    reader = RowReader(chosen.compares, columns, label or task_type.label, labels)

    def read(source: Source, split: str) -> AnyRows:
        wanted = (*columns, reader.label)
        try:
            where, records = read_source(source, split, wanted)
            rows = reader.read(records)
        except ColumnError as error:
            option = "--text" if error.column in columns else "--label"
            raise TaskError(f"{error}; {_advise(task_type, error.header, option)}") from error
        if not len(rows):
            raise TaskError(f"{where}: has no rows; at least one is needed")
        return rows

    # In this order: the label names come from train.
    train_rows = read(train, "train")
    if chosen.compares == "classes" and not reader.are_given:
        _warn_of_numbers(reader.label_names or (), len(train_rows))
    if dev is None:
        classes = train_rows.labels if chosen.compares == "classes" else [0] * len(train_rows)
        first, second = set_aside(train_rows, classes, DEV_SHARE)
        train_rows, dev_rows = train_rows.select(first), train_rows.select(second)
    else:
        dev_rows = read(dev, "dev")
    sources = {"train": train, "dev": train if dev is None else dev}
    files = {split: str(each) for split, each in sources.items() if isinstance(each, (str, Path))}
    return TaskData(name, train_rows, dev_rows, reader.label_names, chosen.name, files=files)


def are_numbers(names: Iterable[str]) -> bool:
    """Return whether all classes are finite numbers."""
    return all(math.isfinite(_float(name)) for name in names)


def _warn_of_numbers(names: Sequence[str], num_rows: int) -> None:
    """Warn of classes that look like numbers to predict: each has few rows."""
    if len(names) > USUAL_CLASSES and num_rows < _FEW_ROWS * len(names) and are_numbers(names):
        logger.warning(
            "the %d rows of train have %d classes, all of them numbers; to predict "
            "numbers, choose the metric (--metric) pearson or spearman",
            num_rows,
            len(names),
        )


def _advise(task_type: TaskType, header: Sequence[str], option: str) -> str:
    """Return the remedy for a missing column: another task type or another column."""
    for other in TASK_TYPES.values():
        if other != task_type and other.label and {*other.text, other.label} <= set(header):
            return (
                f"they look like rows of kind {other.name}: add --kind {other.name}, "
                f"or name the column with {option}"
            )
    return f"name the column with {option}, or add it to the row"


def read_source(source: Source, name: str, columns: Sequence[str]) -> tuple[str, Iterator[Record]]:
    """Return the place of rows and their records; `name` is the place of rows in memory."""
    if isinstance(source, (str, Path)):
        return str(source), read_records(Path(source), columns)
    return name, _records_in_memory(source, name, columns)


def _records_in_memory(rows: Any, split: str, columns: Sequence[str]) -> Iterator[Record]:
    # A data frame of pandas iterates over the names of its columns.
    if hasattr(rows, "to_dict") and hasattr(rows, "columns"):
        rows = rows.to_dict("records")
    if isinstance(rows, Mapping) or not isinstance(rows, Iterable):
        remedy = "; give a list of rows, not columns" if isinstance(rows, Mapping) else ""
        raise TaskError(
            f"{split}: a file, or rows that each map columns to values, are needed, "
            f"found {type(rows).__name__}{remedy}"
        )
    return check_records(((f"{split} row {place}", row) for place, row in enumerate(rows)), columns)


TO_PREDICT = "for numbers to predict choose --metric pearson or spearman"

# How many text columns a row may have, by what the metric compares.
_TEXTS = {"tags": ((1,), "one column of words"), "spans": ((2,), "two text columns")}
_ONE_OR_TWO = ((1, 2), "one or two text columns")
_NO_NAMES = {
    "numbers": "numbers to predict have no names",
    "spans": "answers are pieces of their context and have no names",
}


class RowReader:
    """Turn the records of train, and then those of dev, into rows.

    Label names are those that are given, or else those of train.
    """

    def __init__(
        self, compares: str, text: Sequence[str], label: str, labels: Sequence[str] | None
    ) -> None:
        counts, needs = _TEXTS.get(compares, _ONE_OR_TWO)
        if len(text) not in counts or len({*text, label}) != len(text) + 1:
            raise TaskError(
                f"columns: {needs} and a different column for the label are needed, found "
                f"--text {','.join(text) or '(none)'} and --label {label}"
            )
        if labels is not None and len(set(labels)) != len(labels):
            raise TaskError(
                f"labels: each name must be given once, found {shorten(list(labels), 20)}; "
                "remove the repeats"
            )
        if labels is not None and compares in _NO_NAMES:
            raise TaskError(f"labels: {_NO_NAMES[compares]}; leave labels out")
        self.compares, self.text, self.label = compares, text, label
        self.are_given = labels is not None
        self.numbers = None if labels is None else _number_names(labels)

    @property
    def label_names(self) -> tuple[str, ...] | None:
        """The classes or tags in the order of their numbers."""
        return None if self.numbers is None else tuple(self.numbers)

    def read(self, records: Iterable[Record]) -> AnyRows:
        """Return checked rows; a `TaskError` names the place of a record that is wrong."""
        columns: list[list[Any]] = [[] for _ in self.text]
        labels: list[Any] = []
        for where, fields in records:
            texts, label = self._parse(where, fields)
            for column, value in zip(columns, texts, strict=True):
                column.append(value)
            labels.append(label)
        if self.compares == "numbers":
            return Rows.from_columns(columns, labels)
        if self.compares == "spans":
            return QuestionRows(tuple(columns[0]), tuple(columns[1]), tuple(labels))
        if self.numbers is None:
            self.numbers = _number_names(_sort_names(labels, self.compares))
        numbers = self.numbers
        if self.compares == "classes":
            return Rows.from_columns(columns, [numbers[name] for name in labels])
        tags = tuple(tuple(numbers[tag] for tag in row) for row in labels)
        return WordRows(tuple(columns[0]), tags)

    def _parse(self, where: str, fields: Mapping[str, Any]) -> tuple[Sequence[Any], Any]:
        """Return the value of each text column, and the label."""
        *texts, label = [
            (fields[column], f"{where}, column '{column}'") for column in (*self.text, self.label)
        ]
        if self.compares == "tags":
            words, tags = read_strings(*texts[0]), read_strings(*label)
            check_words(words, tags, where)
            named = [
                self._check_name(tag, f"{where}, word {place} '{words[place]}': tag")
                for place, tag in enumerate(tags)
            ]
            return [words], named
        values = [read_text(*text) for text in texts]
        if self.compares == "numbers":
            return values, _number(*label)
        if self.compares == "classes":
            name = _class_name(*label, self.numbers or ())
            return values, self._check_name(name, f"{where}: label")
        answers = _answers(*label)
        check_answers(answers, values[1], label[1])
        return values, tuple(dict.fromkeys(answers))  # annotators often give the same answer

    def _check_name(self, name: str, what: str) -> str:
        if self.numbers is not None and name not in self.numbers:
            names = list(self.numbers)
            known, advice = ("the known labels" if self.are_given else "train's"), ""
            if self.compares == "classes" and not self.are_given:
                advice = f"; {TO_PREDICT}" if are_numbers((name, *names)) else ""
            raise TaskError(
                f"{what} '{name}' is not one of {known} ({shorten(names)}); "
                f"correct it or leave the row out{advice}"
            )
        return sys.intern(name)  # one object for all rows


def _number_names(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


def _sort_names(labels: Sequence[Any], compares: str) -> tuple[str, ...]:
    if compares == "tags":
        from auber.metrics.tags import sort_tags  # imports torch

        return sort_tags({tag for tags in labels for tag in tags})
    names = sorted(set(labels))
    if all(re.fullmatch(r"-?[0-9]{1,18}", name) for name in names):
        names.sort(key=int)
    return tuple(names)


def read_text(value: Any, where: str) -> str:
    """Return a text; None is an empty one, which is refused."""
    if value is None:
        value = ""
    if not isinstance(value, str):
        raise TaskError(
            f"{where}: must be text, found {type(value).__name__} {value!r:.40}; put it in quotes"
        )
    check_text(value, where)
    return value


def to_plain(value: Any) -> Any:
    """Return a number or an array of NumPy, torch or pandas as Python's own."""
    return value.tolist() if hasattr(value, "tolist") else value


def read_strings(value: Any, where: str) -> tuple[str, ...]:
    """Return a list of words or tags; tags may be whole numbers."""
    value = to_plain(value)
    if not isinstance(value, (list, tuple)):
        raise TaskError(
            f"{where}: must be a list, found {type(value).__name__} {value!r:.40}; "
            "use jsonl or CoNLL columns"
        )
    for number, item in enumerate(value):
        if not isinstance(item, (str, int)) or isinstance(item, bool):
            raise TaskError(
                f"{where}, item {number}: must be text, found {type(item).__name__} {item!r:.40}; "
                "correct it"
            )
    return tuple(str(item).strip() for item in value)


def _answers(value: Any, where: str) -> list[Answer]:
    """Return answers that are given as an object of two lists, or as a list of objects."""
    pairs: list[Any] | None = None
    if isinstance(value, Mapping):
        lists: list[Any] = [value.get("text"), value.get("answer_start")]
        if all(isinstance(each, (list, tuple)) for each in lists) and len({*map(len, lists)}) == 1:
            pairs = list(zip(*lists, strict=True))
    elif isinstance(value, (list, tuple)) and all(isinstance(item, Mapping) for item in value):
        pairs = [(item.get("text"), item.get("answer_start")) for item in value]
    if pairs is None:
        raise TaskError(
            f"{where}: an object with the lists text and answer_start, equally long, is needed, "
            f"found {value!r:.60}; correct it"
        )
    for text, start in pairs:
        if not isinstance(text, str) or isinstance(start, bool) or not isinstance(start, int):
            raise TaskError(
                f"{where}: text must be text and answer_start a whole number, "
                f"found {text!r:.40} and {start!r:.20}; correct them"
            )
    return [Answer(*pair) for pair in pairs]


def _class_name(value: Any, where: str, known: Container[str]) -> str:
    """Return the label as text: 1, 1.0, "1" and "1.0" are one class, unless "1.0" is known."""
    value = to_plain(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, (str, int)) and str(value).strip():
        name = str(value).strip()
        return name if name in known else re.sub(r"\A(-?[0-9]+)\.0+\Z", r"\1", name)
    if value is None or isinstance(value, str):
        raise TaskError(f"{where}: the label is empty; fill it in or leave the row out")
    raise TaskError(
        f"{where}: a class must be a word or a whole number, found {value!r:.40}; {TO_PREDICT}"
    )


def _number(value: Any, where: str) -> float:
    number = _float(value)
    if not math.isfinite(number):
        raise TaskError(
            f"{where}: a regression target must be a finite number, found {value!r:.40}; correct it"
        )
    return number


def _float(value: Any) -> float:
    """Return a value as a number, or NaN if it is not one."""
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
