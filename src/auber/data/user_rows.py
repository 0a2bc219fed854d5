"""Your own rows: files, or records in memory, as a task.

The kind of task is named, or follows from the metric. Here are the rows of kind sequence; `own_words` and `own_questions`
have the others. Classes may be words or numbers and are counted in sorted order, by value if all are whole numbers. With a
regression metric the labels are read as numbers. Whatever is wrong is a `TaskError` that names the file and the line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from auber.data.readers import (
    ColumnError,
    ReadSplit,
    Record,
    plain,
    read_records,
    require_columns,
    shorten,
)
from auber.data.task import Rows, TaskData, check_rows, check_task, check_text
from auber.data.task_types import KINDS, Kind, get_kind
from auber.data.user_questions import build_questions
from auber.data.user_words import build_words
from auber.errors import TaskError

OWN = "own"  # what rows are called that nobody names

Answer = TypeVar("Answer")
Source = (
    str | Path | Iterable[Mapping[str, Any]]
)  # a file, or rows such as dicts or a datasets.Dataset


def make_task(
    train: Source,
    dev: Source,
    *,
    kind: str | None = None,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    labels: Sequence[str] | None = None,
    metric: str | None = None,
    name: str = OWN,
) -> TaskData:
    """A task of your own rows: `train` and `dev` are files, or rows that map columns to values.

    `kind` is sequence, tokens or spans; without it, the kind that `metric` scores, sequence where neither is given. `text`
    and `label` name the columns: text (or two for pairs) and label; tokens and tags; question, context and answers.
    `labels` fixes the names of classes or tags and their order, that of a trained model; without it they are those of train.
    `metric` is accuracy, entity_f1 or span_f1 unless given; pearson, spearman and r_squared make it a regression. `name` is what
    reports call it: runs of the same name are taken for runs of the same rows.
    """
    _check_name(name)
    return check_task(_read_task(train, dev, kind, text, label, labels, metric, name))


def make_scored_rows(
    rows: Source,
    *,
    kind: str | None = None,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    labels: Sequence[str] | None = None,
    metric: str | None = None,
    name: str = OWN,
) -> TaskData:
    """Rows that a trained model is to be scored on, as a task whose both splits they are; arguments as in `make_task`."""
    return check_rows(_read_task(rows, rows, kind, text, label, labels, metric, name))


@dataclass(frozen=True)
class OwnFiles:
    """Files of your own rows and how they are read, as a command or a study names them; nothing is read yet."""

    train: Path
    dev: Path
    kind: str | None = None
    text: tuple[str, ...] | None = None
    label: str | None = None
    labels: tuple[str, ...] | None = None
    metric: str | None = None

    @classmethod
    def named(
        cls,
        *,
        train: str | Path | None = None,
        dev: str | Path | None = None,
        kind: str | None = None,
        text: str | Sequence[str] | None = None,
        label: str | None = None,
        labels: str | Sequence[str] | None = None,
        metric: str | None = None,
    ) -> OwnFiles:
        """What the words of a user mean: names of columns and labels may stand in one text, with commas between."""
        if train is None and dev is None:
            raise TaskError(
                "your own rows need --train FILE and --dev FILE, found neither; add both"
            )
        if train is None or dev is None:
            found, lacking = ("train", "dev") if dev is None else ("dev", "train")
            raise TaskError(
                f"--train and --dev go together, found --{found} alone; add --{lacking} FILE"
            )
        return cls(
            Path(train), Path(dev), kind, split_names(text), label, split_names(labels), metric
        )

    def read(self, name: str) -> TaskData:
        """The task of these rows."""
        return make_task(
            self.train,
            self.dev,
            kind=self.kind,
            text=self.text,
            label=self.label,
            labels=self.labels,
            metric=self.metric,
            name=name,
        )


def split_names(names: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Names with commas between as a tuple; None where there are none."""
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",")]
    return tuple(names) if names else None


def _check_name(name: str) -> None:
    from auber.data import TASKS  # which knows this module

    if name in TASKS or not name.isprintable() or name != name.strip() or not name:
        raise TaskError(
            f"name: must be a word or more, and none of a known task ({', '.join(TASKS)}), found {name!r:.40}; choose another"
        )


def _read_task(
    train: Source,
    dev: Source,
    kind: str | None,
    text: str | Sequence[str] | None,
    label: str | None,
    labels: Sequence[str] | None,
    metric: str | None,
    name: str,
) -> TaskData:
    """Both splits as they are, of the kind that is named or that the metric scores."""
    from auber.metrics.task_metrics import (
        get_metric,
    )  # it brings torch, which listing the tasks does without

    chosen = get_kind(kind or (get_metric(metric).kind if metric else "sequence"))
    measured = get_metric(metric or chosen.metric)
    if measured.kind != chosen.name:
        raise TaskError(
            f"metric {measured.name} scores rows of kind {measured.kind}, found kind {chosen.name}; give one that fits, "
            "or leave one of the two out"
        )
    if labels is not None and len(set(labels)) != len(labels):
        raise TaskError(
            f"labels: each name may stand once, found {shorten(list(labels), 20)}; leave the second out"
        )
    columns = (text,) if isinstance(text, str) else tuple(chosen.text if text is None else text)
    answer = label or chosen.label

    def read(split: str) -> Iterator[Record]:
        try:
            yield from _records(train if split == "train" else dev, split, chosen, columns, answer)
        except ColumnError as error:
            option, is_named = (
                ("--label", label is not None)
                if error.column == answer
                else ("--text", text is not None)
            )
            raise (
                error
                if is_named
                else TaskError(f"{error}; {_advise(chosen, error.header, option)}")
            ) from error

    build: Any = {"sequence": _build_texts, "tokens": build_words, "spans": build_questions}[
        chosen.name
    ]
    if measured.is_regression:
        build = _build_targets
    train_rows, dev_rows, label_names = build(read, columns, answer, labels)
    return TaskData(name, train_rows, dev_rows, label_names, measured.name)


def _advise(kind: Kind, header: Sequence[str], option: str) -> str:
    """What to do where a column that was not named is not there: the rows may be of another kind."""
    for other in KINDS.values():
        if other != kind and {*other.text, other.label} <= set(header):
            return f"they look like rows of kind {other.name}: add --kind {other.name}, or name the column with {option}"
    return f"name it with {option}"


def _records(
    source: Source, split: str, kind: Kind, text: Sequence[str], label: str
) -> Iterator[Record]:
    """The records of a split one after the other; a large file is never held as records."""
    where = str(source) if isinstance(source, (str, Path)) else split
    allowed = (1, 2) if kind.name == "sequence" else (len(kind.text),)
    if len(text) not in allowed or len({*text, label}) != len(text) + 1:
        wanted = {
            "sequence": "one or two text columns",
            "tokens": "one column of words",
            "spans": "two text columns",
        }
        raise TaskError(
            f"{where}: {wanted[kind.name]} and another for the label are needed, "
            f"found text {', '.join(text) or '(none)'} and label {label}"
        )
    columns = (*text, label)
    if isinstance(source, (str, Path)):
        records = read_records(Path(source), columns)
    else:
        records = _records_in_memory(source, split, columns)
    empty = True
    for record in records:
        empty = False
        yield record
    if empty:
        raise TaskError(f"{where}: has no rows; at least one is needed")


def _records_in_memory(rows: Iterable[Any], split: str, columns: Sequence[str]) -> Iterator[Record]:
    # A table of pandas iterates over the names of its columns.
    if hasattr(rows, "to_dict") and hasattr(rows, "columns"):
        rows = rows.to_dict("records")
    if isinstance(rows, Mapping) or not isinstance(rows, Iterable):
        raise TaskError(
            f"{split}: a file, or rows that each map columns to values, are needed, found {type(rows).__name__}"
            + ("; give a list of rows, not columns" if isinstance(rows, Mapping) else "")
        )
    for number, row in enumerate(rows):
        place = f"{split} row {number}"
        if not isinstance(row, Mapping):
            raise TaskError(
                f"{place}: a row must map columns to values, found {type(row).__name__}"
            )
        require_columns(columns, list(row), place, is_first=number == 0)
        yield place, row


def _build_texts(
    read: ReadSplit, text: Sequence[str], label: str, names: Sequence[str] | None
) -> tuple[Rows, Rows, tuple[str, ...]]:
    """Both splits, and the names of the classes."""
    whose = "train's" if names is None else "the known labels"
    seen = _Classes(names, whose)

    def number(record: Record) -> int:
        return seen.number(_class_name(record, label, known=names or ()), record[0])

    train_texts, train_classes = _columns(read("train"), text, number)
    ordered = seen.close()
    dev_texts, dev_classes = _columns(read("dev"), text, number)
    return (
        _rows(train_texts, seen.in_order(train_classes)),
        _rows(dev_texts, seen.in_order(dev_classes)),
        ordered,
    )


def _build_targets(
    read: ReadSplit, text: Sequence[str], label: str, names: Sequence[str] | None
) -> tuple[Rows, Rows, None]:
    """Both splits, with numbers to predict."""
    if names is not None:
        raise TaskError("labels: numbers to predict have no names; leave labels out")

    def target(record: Record) -> float:
        return _target(record[1][label], f"{record[0]}, column '{label}'")

    train, dev = (_rows(*_columns(read(split), text, target)) for split in ("train", "dev"))
    return train, dev, None


def _columns(
    records: Iterable[Record], text: Sequence[str], answer: Callable[[Record], Answer]
) -> tuple[list[list[str]], list[Answer]]:
    """The texts of the records, a list a column, and what stands for their labels; in one pass."""
    texts: list[list[str]] = [[] for _ in text]
    answers: list[Answer] = []
    for record in records:
        where, fields = record
        answers.append(answer(record))
        for column, values in zip(text, texts, strict=True):
            values.append(_text(fields[column], f"{where}, column '{column}'"))
    return texts, answers


def _rows(texts: list[list[str]], labels: Iterable[int] | Iterable[float]) -> Rows:
    return Rows(tuple(texts[0]), tuple(texts[1]) if len(texts) == 2 else None, tuple(labels))


_TO_PREDICT = "for numbers to predict choose --metric pearson or spearman"


class _Classes:
    """Numbers for names of classes: those met in train, until it is closed, or a list that is given."""

    def __init__(self, names: Sequence[str] | None, whose: str) -> None:
        self._numbers = {
            name: number for number, name in enumerate(names or ())
        }  # in the order they were met
        self._whose, self._grows = whose, names is None
        self._order: tuple[str, ...] | None = None if names is None else tuple(names)

    def number(self, name: str, where: str) -> int:
        """The number of a name, for now."""
        if name not in self._numbers:
            if not self._grows:
                assert self._order is not None
                raise TaskError(
                    f"{where}: label '{name}' is not one of {self._whose} ({shorten(self._order)}); "
                    "correct it or leave the row out"
                    + (
                        f"; {_TO_PREDICT}"
                        if all(math.isfinite(_number(each)) for each in (name, *self._order))
                        else ""
                    )
                )
            self._numbers[name] = len(self._numbers)
        return self._numbers[name]

    def close(self) -> tuple[str, ...]:
        """The names in their order; no other is taken from now on."""
        self._grows = False
        if self._order is None:
            self._order = _sorted_classes(set(self._numbers))
        return self._order

    def in_order(self, numbers: Iterable[int]) -> Iterator[int]:
        """Numbers given so far as places in the order of `close`."""
        places = [self.close().index(name) for name in self._numbers]
        return (places[number] for number in numbers)


def _text(value: Any, where: str) -> str:
    if value is None:
        value = ""
    if not isinstance(value, str):
        raise TaskError(
            f"{where}: must be text, found {type(value).__name__} {value!r:.40}; put it in quotes"
        )
    check_text(value, where)
    return value


def _class_name(record: Record, label: str, known: Sequence[str]) -> str:
    """The label as text, so that 1, 1.0, "1" and "1.0" are one class whichever kind of file they come from.

    A name that is known is taken as it is.
    """
    where, fields = record
    value = plain(fields[label])
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, (str, int)) and str(value).strip():
        name = str(value).strip()
        return name if name in known else re.sub(r"\A(-?[0-9]+)\.0+\Z", r"\1", name)
    if value is None or isinstance(value, str):
        raise TaskError(
            f"{where}, column '{label}': the label is empty; fill it in or leave the row out"
        )
    raise TaskError(
        f"{where}, column '{label}': a class must be a word or a whole number, found {value!r:.40}; {_TO_PREDICT}"
    )


def _number(value: Any) -> float:
    """A value as a number, nan where it is none."""
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _target(value: Any, where: str) -> float:
    target = _number(value)
    if not math.isfinite(target):
        raise TaskError(
            f"{where}: a regression target must be a finite number, found {value!r:.40}; correct it"
        )
    return target


def _sorted_classes(names: set[str]) -> tuple[str, ...]:
    if all(re.fullmatch(r"-?[0-9]{1,18}", name) for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))
