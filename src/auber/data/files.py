"""Read rows from csv, tsv, json, jsonl, parquet, CoNLL and SQuAD files.

`read_records` yields the place of each row ("rows.csv, line 3") and its columns. Large csv, tsv and
jsonl files are read line by line. Nothing is converted: "NA" and "007" in a csv stay text.

- csv and tsv follow RFC 4180, as spreadsheets and pandas write it: the first line names the
  columns, a field in quotes may hold separators and line ends, and a quote inside it is doubled.
  A file that breaks these rules is refused. (GLUE's tsv files have no quoting; see `glue`.)
- conll and txt files have one word per line, with columns separated by tabs or spaces: the first is
  the word, the last its tag. A blank line ends a sentence; `-DOCSTART-` lines are skipped.
- A json file is a list of objects, one object per line, or SQuAD's (version 1: data, paragraphs,
  qas).
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from auber.errors import TaskError, first_line, shorten, unknown_name

_SEPARATORS = {"commas": ",", "tabs": "\t", "semicolons": ";"}

Record = tuple[str, Mapping[str, Any]]  # where it is, and its columns


class ColumnError(TaskError):
    """A source of rows lacks a column; `header` has the columns that it has."""

    def __init__(self, message: str, column: str, header: Sequence[str]) -> None:
        super().__init__(message)
        self.column, self.header = column, header


def read_records(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    """Yield the records of a file with these columns; its format follows from its name."""
    suffix = path.suffix.lower()
    if path.is_dir():
        raise TaskError(f"{path}: is a folder; name a file of rows in it")
    if suffix not in _READERS:
        endings = ", ".join(sorted(_READERS))
        raise TaskError(f"{path}: the name must end in one of {endings}, found '{path.suffix}'")
    return _READERS[suffix](path, columns)


def check_records(items: Iterable[tuple[str, Any]], columns: Sequence[str]) -> Iterator[Record]:
    """Yield the items, each with its place; raise `TaskError` unless they have these columns."""
    for where, fields in items:
        if not isinstance(fields, Mapping):
            raise TaskError(
                f"{where}: must be an object that maps columns to values, "
                f"found {type(fields).__name__}"
            )
        _require_columns(columns, list(fields), where)
        yield where, fields


def _require_columns(columns: Sequence[str], header: Sequence[Any], where: str) -> None:
    """Raise `ColumnError` if the header lacks a column, and `TaskError` if it has one twice."""
    names = list(map(str, header))  # a mapping in memory may have any keys
    for name in columns:
        if name not in header:
            message = f"{where}: {unknown_name('column', name, names, most=20)}"
            raise ColumnError(message, name, names)
        if header.count(name) > 1:
            raise TaskError(
                f"{where}: one column '{name}' is needed, found several of that name; "
                f"there are {shorten(names, 20)}"
            )


def read_lines(path: Path) -> Generator[str, None, None]:
    r"""Yield the lines of a UTF-8 file with their ends; only "\n" ends a line."""
    try:
        with path.open("rb") as file:
            for number, data in enumerate(file, start=1):
                where = f"{path}, line {number}"
                text = data.decode("utf-8-sig" if number == 1 else "utf-8")
                if "\0" in text:
                    raise TaskError(
                        f"{where}: holds a NUL character, so it is not a text file; "
                        "save it as UTF-8 text"
                    )
                yield text
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise TaskError(
            f"{where}: byte 0x{byte:02x} is not UTF-8; save the file as UTF-8"
        ) from error
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> TaskError:
    if isinstance(error, FileNotFoundError):
        return TaskError(f"{path}: there is no such file; correct the path")
    return TaskError(f"{path}: cannot be read ({error.strerror}); a readable file is needed")


def read_table(
    path: Path,
    columns: Sequence[str],
    delimiter: str = ",",
    *,
    header: Sequence[str] | None = None,
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL,
) -> Iterator[Record]:
    """Yield the records of a csv or tsv; without a `header`, the first line names the columns."""
    first = 1  # line of the current record
    # Closed at once: a caller that keeps an error would otherwise keep the file open.
    with closing(read_lines(path)) as lines:
        reader = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)
        try:
            for fields in reader:
                first = reader.line_num + 1
                if not fields:  # a blank line
                    continue
                if header is None:
                    header = fields
                    for name, other in _SEPARATORS.items():
                        if len(header) == 1 and other in header[0]:
                            wanted = "tabs" if delimiter == "\t" else "commas"
                            raise TaskError(
                                f"{path}: columns must be separated by {wanted}, found {name}; "
                                "write it again, or use jsonl"
                            )
                    _require_columns(columns, header, str(path))
                    continue
                where = f"{path}, line {reader.line_num}"
                if len(fields) != len(header):
                    raise TaskError(
                        f"{where}: {len(header)} columns are needed, found {len(fields)}; "
                        "correct the line"
                    )
                yield where, dict(zip(header, fields, strict=True))
        except csv.Error as error:
            last = reader.line_num
            quote = f" (a quote is open until line {last})" if last > first else ""
            raise TaskError(
                f"{path}, line {first}: {error}{quote}; put fields that hold quotes, separators or "
                "line ends in quotes, quotes inside doubled, or use jsonl"
            ) from error


def _read_jsonl(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    return check_records(_parse_lines(path), columns)


def _parse_lines(path: Path) -> Iterator[tuple[str, Any]]:
    for line, content in enumerate(read_lines(path), start=1):
        if not content.strip():
            continue
        where = f"{path}, line {line}"
        try:
            value = json.loads(content)
        except (ValueError, RecursionError) as error:
            reason = str(error)
            if isinstance(error, json.JSONDecodeError):
                reason = f"{error.msg} at character {error.pos + 1}"
            raise TaskError(
                f"{where}: not a JSON value ({reason}); each line must be one JSON object"
            ) from error
        yield where, value


def _read_parquet(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise TaskError(
            f"{path}: reading parquet needs the package 'pyarrow'; install it or use csv"
        ) from error
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        # pre_buffer off: the file is in memory already.
        file = parquet.ParquetFile(pyarrow.BufferReader(data), pre_buffer=False)
        _require_columns(columns, file.schema_arrow.names, str(path))
        values = {name: file.read(columns=[name]).column(0).to_pylist() for name in columns}
        if len({len(column) for column in values.values()}) != 1:  # possible in a damaged file
            raise pyarrow.ArrowInvalid("its columns are not equally long")
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise TaskError(
            f"{path}: cannot be read as parquet ({first_line(error)}); write it again"
        ) from error
    for row, record in enumerate(zip(*values.values(), strict=True)):
        yield f"{path}, row {row}", dict(zip(values, record, strict=True))


def _read_conll(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    _require_columns(columns, ["tokens", "tags"], f"{path}, read as words with tags")
    words: list[str] = []
    tags: list[str] = []
    first = 1
    for line, content in enumerate(chain(read_lines(path), [""]), start=1):
        content = content.strip(" \t\r\n")
        if content and not content.startswith("-DOCSTART-"):
            fields = re.split(r"\t" if "\t" in content else " +", content)
            if len(fields) < 2:
                raise TaskError(
                    f"{path}, line {line}: a word and its tag are needed, found {content!r:.40} "
                    "alone; add its tag"
                )
            if not words:
                first = line
            words.append(fields[0].strip(" "))
            tags.append(fields[-1].strip(" "))
        elif words:
            yield f"{path}, line {first}", {"tokens": words, "tags": tags}
            words, tags = [], []


def _read_json(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    text = "".join(read_lines(path))
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError) and error.msg == "Extra data":
            return _read_jsonl(path, columns)
        raise TaskError(
            f"{path}: not a JSON value ({error}); SQuAD's json, or a list of objects, is needed"
        ) from error
    if isinstance(content, list):
        items = ((f"{path}, item {number}", item) for number, item in enumerate(content))
        return check_records(items, columns)
    if isinstance(content, dict) and "data" in content:
        squad = ["question", "context", "answers"]
        _require_columns(columns, squad, f"{path}, read as SQuAD's questions")
    return check_records(_walk_squad(path, content), columns)


def _walk_squad(path: Path, content: Any) -> Iterator[tuple[str, Any]]:
    """Yield the place and the object of each question, with its context."""
    for title, article in enumerate(_squad_list(content, "data", str(path))):
        place = f"{path}, data {title}"
        for number, paragraph in enumerate(_squad_list(article, "paragraphs", place)):
            inner = f"{place}, paragraph {number}"
            for order, question in enumerate(_squad_list(paragraph, "qas", inner)):
                if isinstance(question, dict):
                    question = {"context": paragraph.get("context"), **question}
                yield f"{inner}, question {order}", question


def _squad_list(value: Any, key: str, where: str) -> list[Any]:
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, list):
        raise TaskError(
            f"{where}: a JSON object with a list '{key}' is needed, as in SQuAD's files; correct it"
        )
    return found


_READERS: dict[str, Callable[[Path, Sequence[str]], Iterator[Record]]] = {
    ".conll": _read_conll,
    ".csv": read_table,
    ".json": _read_json,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
    ".tsv": partial(read_table, delimiter="\t"),
    ".txt": _read_conll,
}
