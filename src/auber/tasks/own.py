"""Your own rows: files, or records in memory, as a task.

The kind of task is named, or follows from the metric. Here are the rows of kind sequence; `own_words` and `own_questions`
have the others. Classes may be words or numbers and are counted in sorted order, by value if all are whole numbers. With a
regression metric the labels are read as numbers. Whatever is wrong is a `TaskError` that names the file and the line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from auber.errors import TaskError
from auber.kinds import Kind, get_kind
from auber.tasks.base import Rows, TaskData, check_task, check_text
from auber.tasks.files import ReadSplit, Record, read_records, require_columns, shorten
from auber.tasks.own_questions import build_questions
from auber.tasks.own_words import build_words

Source = str | Path | Iterable[Mapping[str, Any]]  # a file, or rows such as dicts or a datasets.Dataset


def make_task(
    train: Source,
    dev: Source,
    *,
    kind: str | None = None,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    labels: Sequence[str] | None = None,
    metric: str | None = None,
    name: str = "own",
) -> TaskData:
    """A task of your own rows: `train` and `dev` are files, or rows that map columns to values.

    `kind` is sequence, tokens or spans; without it, the kind that `metric` scores, sequence where neither is given. `text`
    and `label` name the columns: text (or two for pairs) and label; tokens and tags; question, context and answers.
    `labels` fixes the names of classes or tags and their order, that of a trained model; without it they are those of train.
    `metric` is accuracy, entity_f1 or span_f1 unless given; pearson and spearman make it a regression.
    """
    from auber.metrics import get_metric  # it brings torch, which listing the tasks does without

    chosen = get_kind(kind or (get_metric(metric).kind if metric else "sequence"))
    measured = get_metric(metric or chosen.metric)
    if measured.kind != chosen.name:
        raise TaskError(
            f"metric {measured.name} scores rows of kind {measured.kind}, found kind {chosen.name}; give one that fits, "
            "or leave one of the two out"
        )
    if labels is not None and len(set(labels)) != len(labels):
        raise TaskError(f"labels: each name may stand once, found {shorten(list(labels), 20)}; leave the second out")
    columns = (text,) if isinstance(text, str) else tuple(chosen.text if text is None else text)
    answer = label or chosen.label

    def read(split: str) -> list[Record]:
        return _records(train if split == "train" else dev, split, chosen, columns, answer)

    build: Any = {"sequence": _build_texts, "tokens": build_words, "spans": build_questions}[chosen.name]
    if measured.is_regression:
        build = _build_targets
    train_rows, dev_rows, label_names = build(read, columns, answer, labels)
    return check_task(TaskData(name, train_rows, dev_rows, label_names, measured.name))


def _records(source: Source, split: str, kind: Kind, text: Sequence[str], label: str) -> list[Record]:
    where = str(source) if isinstance(source, (str, Path)) else split
    allowed = (1, 2) if kind.name == "sequence" else (len(kind.text),)
    if len(text) not in allowed or len({*text, label}) != len(text) + 1:
        wanted = {"sequence": "one or two text columns", "tokens": "one column of words", "spans": "two text columns"}
        raise TaskError(
            f"{where}: {wanted[kind.name]} and another for the label are needed, "
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


def _build_texts(
    read: ReadSplit, text: Sequence[str], label: str, names: Sequence[str] | None
) -> tuple[Rows, Rows, tuple[str, ...]]:
    """Both splits, and the names of the classes."""
    train = read("train")
    ordered = _sorted_classes({_class_name(record, label) for record in train}) if names is None else tuple(names)
    whose = "train's" if names is None else "the labels given"
    trained = _rows(train, text, _classes(train, label, ordered, whose))
    dev = read("dev")
    return trained, _rows(dev, text, _classes(dev, label, ordered, whose)), ordered


def _build_targets(
    read: ReadSplit, text: Sequence[str], label: str, names: Sequence[str] | None
) -> tuple[Rows, Rows, None]:
    """Both splits, with numbers to predict."""
    if names is not None:
        raise TaskError("labels: numbers to predict have no names; leave labels out")
    train = read("train")
    trained = _rows(train, text, _targets(train, label))
    dev = read("dev")
    return trained, _rows(dev, text, _targets(dev, label)), None


def _rows(records: Sequence[Record], text: Sequence[str], labels: tuple[int, ...] | tuple[float, ...]) -> Rows:
    texts = [
        tuple(_text(fields[column], f"{where}, column '{column}'") for where, fields in records) for column in text
    ]
    return Rows(texts[0], texts[1] if len(texts) == 2 else None, labels)


def _classes(records: Sequence[Record], label: str, names: Sequence[str], whose: str) -> tuple[int, ...]:
    """The number of each record's class."""
    numbers = {name: number for number, name in enumerate(names)}
    classes = []
    for record in records:
        name = _class_name(record, label)
        if name not in numbers:
            raise TaskError(
                f"{record[0]}: label '{name}' is not one of {whose} ({shorten(names)}); correct it or leave the row out"
            )
        classes.append(numbers[name])
    return tuple(classes)


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


def _targets(records: Sequence[Record], label: str) -> tuple[float, ...]:
    """The number each record has for its label."""
    return tuple(_target(fields[label], f"{where}, column '{label}'") for where, fields in records)


def _sorted_classes(names: set[str]) -> tuple[str, ...]:
    if all(re.fullmatch(r"-?[0-9]{1,18}", name) for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))
