"""Your own rows, from csv, tsv, jsonl or parquet files.

The first line of a csv or tsv file names its columns. Both follow RFC 4180, tsv with tabs in place of commas: a field
that starts with a quote runs to the closing quote, and a quote inside it is doubled. That is what spreadsheets and
pandas write; a quote elsewhere in a field is a character like any other. A file that breaks the rules is refused with
its line rather than guessed at (GLUE's files, which know no quoting, have a reader of their own).

Classes may be words or numbers and are counted in sorted order, by value if all are whole numbers. With a regression
metric the labels are read as numbers. Whatever is wrong with a file is a `TaskError` that names the file and the line.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from auber.errors import TaskError
from auber.metrics import get_metric
from auber.tasks.base import Rows, TaskData, check_task, check_text
from auber.tasks.reading import read_bytes, read_text

# Where a record stands ("rows.csv, line 3") and its wanted columns.
Record = tuple[str, Mapping[str, Any]]


def read_own(
    train: Path, dev: Path, text: Sequence[str], label: str, metric: str | None = None, name: str = "own"
) -> TaskData:
    """A task from a file of training rows and a file of dev rows; `text` names one column, or two for pairs."""
    chosen = get_metric(metric or "accuracy")
    trained = _records(train, text, label)
    label_names = None if chosen.is_regression else _sorted_classes({_class_name(record, label) for record in trained})
    data = TaskData(
        name=name,
        train=_rows(trained, text, label, label_names),
        dev=_rows(_records(dev, text, label), text, label, label_names),
        label_names=label_names,
        metric=chosen.name,
    )
    return check_task(data)


def read_rows(path: Path, text: Sequence[str], label: str, label_names: Sequence[str] | None) -> Rows:
    """The rows of one file, for classes that are already known (None: regression)."""
    return _rows(_records(path, text, label), text, label, label_names)


def _records(path: Path, text: Sequence[str], label: str) -> list[Record]:
    if len(text) not in (1, 2) or len({*text, label}) != len(text) + 1:
        raise TaskError(
            f"{path}: one or two text columns and another for the label are needed, "
            f"found text {', '.join(text) or '(none)'} and label {label}"
        )
    suffix = path.suffix.lower()
    if suffix not in _READERS:
        raise TaskError(f"{path}: the name must end in one of {', '.join(sorted(_READERS))}, found '{path.suffix}'")
    records = list(_READERS[suffix](path, (*text, label)))
    if not records:
        raise TaskError(f"{path}: the file has no rows; at least one is needed")
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
                f"{where}: label '{name}' is not one of train's ({_shorten(label_names)}); correct it or leave the row out"
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


def _shorten(names: Sequence[str], most: int = 10) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def _read_separated(path: Path, columns: Sequence[str], delimiter: str) -> Iterator[Record]:
    reader = csv.reader(io.StringIO(read_text(path), newline=""), delimiter=delimiter, strict=True)
    header: list[str] = []
    try:
        for fields in reader:
            if not fields:  # a blank line
                continue
            if not header:
                header = fields
                _require_columns(columns, header, str(path))
                continue
            where = f"{path}, line {reader.line_num}"
            if len(fields) != len(header):
                raise TaskError(f"{where}: {len(header)} columns are needed, found {len(fields)}; correct the line")
            yield where, dict(zip(header, fields, strict=True))
    except csv.Error as error:
        raise TaskError(
            f"{path}, line {reader.line_num}: {error}; put fields that hold quotes, separators or line ends in quotes, "
            "quotes inside doubled, or use jsonl"
        ) from error


def _read_csv(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    return _read_separated(path, columns, ",")


def _read_tsv(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    return _read_separated(path, columns, "\t")


def _read_jsonl(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    for line, content in enumerate(read_text(path).split("\n"), start=1):
        if not content.strip():
            continue
        where = f"{path}, line {line}"
        try:
            fields = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise TaskError(f"{where}: not a JSON value ({error}); each line must be one JSON object") from error
        if not isinstance(fields, dict):
            raise TaskError(f"{where}: each line must be a JSON object, found {type(fields).__name__}")
        _require_columns(columns, list(fields), where)
        yield where, fields


def _read_parquet(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise TaskError(f"{path}: reading parquet needs the package 'pyarrow'; install it or use csv") from error
    data = read_bytes(path)
    try:
        # pre_buffer off: the file is in memory already.
        file = parquet.ParquetFile(pyarrow.BufferReader(data), pre_buffer=False)
        _require_columns(columns, file.schema_arrow.names, str(path))
        values = {name: file.read(columns=[name]).column(0).to_pylist() for name in columns}
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise TaskError(f"{path}: cannot be read as parquet ({reason}); write it again") from error
    for row in range(len(values[columns[0]])):
        yield f"{path}, row {row}", {name: values[name][row] for name in columns}


def _require_columns(columns: Sequence[str], header: Sequence[str], where: str) -> None:
    for name in columns:
        if header.count(name) != 1:
            found = "no such column" if name not in header else "several of that name"
            raise TaskError(f"{where}: one column '{name}' is needed, found {found}; there are {_shorten(header, 20)}")


_READERS: dict[str, Callable[[Path, Sequence[str]], Iterator[Record]]] = {
    ".csv": _read_csv,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
    ".tsv": _read_tsv,
}
