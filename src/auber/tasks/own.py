"""Your own rows: files, or records in memory, as a task.

Classes may be words or numbers and are counted in sorted order, by value if all are whole numbers. With a regression
metric the labels are read as numbers. Whatever is wrong is a `TaskError` that names the file and the line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from auber.errors import TaskError
from auber.tasks.base import Rows, TaskData, check_task, check_text
from auber.tasks.files import Record, read_records, require_columns, shorten

Source = str | Path | Iterable[Mapping[str, Any]]  # a file, or rows such as dicts or a datasets.Dataset


def make_task(
    train: Source,
    dev: Source,
    *,
    text: Sequence[str] = ("text",),
    label: str = "label",
    metric: str | None = None,
    name: str = "own",
) -> TaskData:
    """A task of your own rows: `train` and `dev` are files, or rows that map columns to values.

    `text` names one column, or two for pairs. `metric` is accuracy unless given; pearson and spearman make it a regression.
    """
    from auber.metrics import get_metric  # it brings torch, which listing the tasks does without

    chosen = get_metric(metric or "accuracy")
    trained = _records(train, "train", text, label)
    label_names = None if chosen.is_regression else _sorted_classes({_class_name(record, label) for record in trained})
    data = TaskData(
        name=name,
        train=_rows(trained, text, label, label_names),
        dev=_rows(_records(dev, "dev", text, label), text, label, label_names),
        label_names=label_names,
        metric=chosen.name,
    )
    return check_task(data)


def _records(source: Source, split: str, text: Sequence[str], label: str) -> list[Record]:
    where = str(source) if isinstance(source, (str, Path)) else split
    if len(text) not in (1, 2) or len({*text, label}) != len(text) + 1:
        raise TaskError(
            f"{where}: one or two text columns and another for the label are needed, "
            f"found text {', '.join(text) or '(none)'} and label {label}"
        )
    columns = (*text, label)
    if isinstance(source, (str, Path)):
        records = list(read_records(Path(source), columns))
    else:
        records = [(f"{split} row {number}", row) for number, row in enumerate(source)]
        for place, row in records:
            if not isinstance(row, Mapping):
                raise TaskError(f"{place}: a row must map columns to values, found {type(row).__name__}")
            require_columns(columns, list(row), place)
    if not records:
        raise TaskError(f"{where}: has no rows; at least one is needed")
    return records


def _rows(records: Sequence[Record], text: Sequence[str], label: str, label_names: Sequence[str] | None) -> Rows:
    numbers = {} if label_names is None else {name: number for number, name in enumerate(label_names)}
    texts: list[list[str]] = [[] for _ in text]
    classes: list[int] = []
    targets: list[float] = []
    for record in records:
        where, fields = record
        for column, values in zip(text, texts, strict=True):
            values.append(_text(fields[column], f"{where}, column '{column}'"))
        if label_names is None:
            targets.append(_target(fields[label], f"{where}, column '{label}'"))
            continue
        name = _class_name(record, label)
        if name not in numbers:
            raise TaskError(
                f"{where}: label '{name}' is not one of train's ({shorten(label_names)}); correct it or leave the row out"
            )
        classes.append(numbers[name])
    labels = tuple(targets) if label_names is None else tuple(classes)
    return Rows(tuple(texts[0]), tuple(texts[1]) if len(texts) == 2 else None, labels)


def _text(value: Any, where: str) -> str:
    if value is None:
        value = ""
    if not isinstance(value, str):
        raise TaskError(f"{where}: must be text, found {type(value).__name__} {value!r:.40}; put it in quotes")
    check_text(value, where)
    return value


def _class_name(record: Record, label: str) -> str:
    """The label as text, so that 1, 1.0 and "1" are one class whichever kind of file they come from."""
    where, fields = record
    value = fields[label]
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, (str, int)) and str(value).strip():
        return str(value).strip()
    if value is None or isinstance(value, str):
        raise TaskError(f"{where}, column '{label}': the label is empty; fill it in or leave the row out")
    raise TaskError(
        f"{where}, column '{label}': a class must be a word or a whole number, found {value!r:.40}; "
        "for numbers to predict choose --metric pearson or spearman"
    )


def _target(value: Any, where: str) -> float:
    try:
        target = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        target = math.nan
    if not math.isfinite(target):
        raise TaskError(f"{where}: a regression target must be a finite number, found {value!r:.40}; correct it")
    return target


def _sorted_classes(names: set[str]) -> tuple[str, ...]:
    if all(re.fullmatch(r"-?[0-9]{1,18}", name) for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))
