"""Files of rows as records, each with the place it stands at: csv, tsv, json, jsonl, parquet, CoNLL columns and SQuAD's json.

The first line of a csv or tsv file names its columns. Both follow RFC 4180, tsv with tabs in place of commas: a field
that starts with a quote runs to the closing quote, and a quote inside it is doubled. That is what spreadsheets and
pandas write; a quote elsewhere in a field is a character like any other. A file that breaks the rules is refused with
its line rather than guessed at (GLUE's files, which know no quoting, have a reader of their own).

A .conll or .txt file has a word a line, its columns separated by tabs or spaces: the first is the word, the last its tag; a
blank line ends a sentence and `-DOCSTART-` lines say nothing. Its records have the columns tokens and tags. A .json file is
SQuAD's (version 1: data, paragraphs, qas); its records have the columns question, context and answers.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from auber.data.text_files import read_bytes, read_lines, read_text
from auber.errors import TaskError, unknown_name

# Where a record stands ("rows.csv, line 3") and its columns.
Record = tuple[str, Mapping[str, Any]]
ReadSplit = Callable[
    [str], Iterator[Record]
]  # the records of "train" or "dev", as they are asked for


def read_records(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    """The records of a file, by the kind its name ends in; each has these columns."""
    suffix = path.suffix.lower()
    if path.is_dir():
        raise TaskError(f"{path}: is a folder; name a file of rows in it")
    if suffix not in _READERS:
        raise TaskError(
            f"{path}: the name must end in one of {', '.join(sorted(_READERS))}, found '{path.suffix}'"
        )
    return _READERS[suffix](path, columns)


class ColumnError(TaskError):
    """A column is not among those of a file or of rows in memory; `header` has them all."""

    def __init__(self, message: str, column: str, header: Sequence[str]) -> None:
        super().__init__(message)
        self.column, self.header = column, header


def require_columns(
    columns: Sequence[str], header: Sequence[Any], where: str, *, is_first: bool = True
) -> None:
    """Raise `TaskError` unless each column is there once; `ColumnError` where what comes first in a source lacks one."""
    names = list(map(str, header))  # a mapping in memory may have any keys
    for name in columns:
        if name not in header and is_first:
            raise ColumnError(
                f"{where}: {unknown_name('column', name, names, most=20)}", name, names
            )
        if header.count(name) != 1:
            found = "no such column" if name not in header else "several of that name"
            raise TaskError(
                f"{where}: one column '{name}' is needed, found {found}; there are {shorten(names, 20)}"
            )


def shorten(names: Sequence[str], most: int = 10) -> str:
    """The first names of a list, for a message."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def plain(value: Any) -> Any:
    """A value as Python's own numbers and lists, where it is one of NumPy's, torch's or pandas'."""
    return value.tolist() if hasattr(value, "tolist") else value


def _read_separated(path: Path, columns: Sequence[str], delimiter: str) -> Iterator[Record]:
    lines = read_lines(path, newline="")
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    header: list[str] = []
    begun = 1  # the line of the present record's first
    try:
        for fields in reader:
            begun = reader.line_num + 1
            if not fields:  # a blank line
                continue
            if not header:
                header = fields
                _require_separator(path, header, delimiter)
                require_columns(columns, header, str(path))
                continue
            where = f"{path}, line {reader.line_num}"
            if len(fields) != len(header):
                raise TaskError(
                    f"{where}: {len(header)} columns are needed, found {len(fields)}; correct the line"
                )
            yield where, dict(zip(header, fields, strict=True))
    except csv.Error as error:
        open_until = (
            f" (a quote is open until line {reader.line_num})" if reader.line_num > begun else ""
        )
        raise TaskError(
            f"{path}, line {begun}: {error}{open_until}; put fields that hold quotes, separators or line ends in quotes, "
            "quotes inside doubled, or use jsonl"
        ) from error
    finally:
        lines.close()  # who keeps the error keeps this frame, and would keep the file open


def _require_separator(path: Path, header: list[str], delimiter: str) -> None:
    """Raise `TaskError` where the first line is one column that another separator would make several."""
    for name, other in (("commas", ","), ("tabs", "\t"), ("semicolons", ";")):
        if len(header) == 1 and other != delimiter and other in header[0]:
            wanted = "tabs" if delimiter == "\t" else "commas"
            raise TaskError(
                f"{path}: columns must be separated by {wanted}, found {name}; write it again, or use jsonl"
            )


def _read_csv(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    return _read_separated(path, columns, ",")


def _read_tsv(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    return _read_separated(path, columns, "\t")


def _read_jsonl(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    is_first = True
    for line, content in enumerate(read_lines(path, newline="\n"), start=1):
        if not content.strip():
            continue
        where = f"{path}, line {line}"
        try:
            fields = json.loads(content)
        except json.JSONDecodeError as error:
            reason = f"{error.msg} at character {error.pos + 1}"
            raise TaskError(
                f"{where}: not a JSON value ({reason}); each line must be one JSON object"
            ) from error
        except (ValueError, RecursionError) as error:
            raise TaskError(
                f"{where}: not a JSON value ({error}); each line must be one JSON object"
            ) from error
        if not isinstance(fields, dict):
            raise TaskError(
                f"{where}: each line must be a JSON object, found {type(fields).__name__}"
            )
        require_columns(columns, list(fields), where, is_first=is_first)
        is_first = False
        yield where, fields


def _read_parquet(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise TaskError(
            f"{path}: reading parquet needs the package 'pyarrow'; install it or use csv"
        ) from error
    data = read_bytes(path)
    try:
        # pre_buffer off: the file is in memory already.
        file = parquet.ParquetFile(pyarrow.BufferReader(data), pre_buffer=False)
        require_columns(columns, file.schema_arrow.names, str(path))
        values = {name: file.read(columns=[name]).column(0).to_pylist() for name in columns}
        if len({len(column) for column in values.values()}) != 1:  # a damaged file can say so
            raise pyarrow.ArrowInvalid("its columns are not equally long")
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise TaskError(f"{path}: cannot be read as parquet ({reason}); write it again") from error
    for row in range(len(values[columns[0]])):
        yield f"{path}, row {row}", {name: values[name][row] for name in columns}


def _read_conll(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    require_columns(columns, ["tokens", "tags"], f"{path}, read as words with tags")
    words: list[str] = []
    tags: list[str] = []
    first = 1
    for line, content in enumerate(chain(read_lines(path, newline="\n"), [""]), start=1):
        content = content.strip(" \t\r\n")
        if content and not content.startswith("-DOCSTART-"):
            fields = re.split(r"\t" if "\t" in content else " +", content)
            if len(fields) < 2:
                raise TaskError(
                    f"{path}, line {line}: a word and its tag are needed, found {content!r:.40} alone; add its tag"
                )
            if not words:
                first = line
            words.append(fields[0].strip(" "))
            tags.append(fields[-1].strip(" "))
        elif words:
            yield f"{path}, line {first}", {"tokens": words, "tags": tags}
            words, tags = [], []


def _read_json(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    """A list of objects, or SQuAD's questions; a file of a JSON object a line is one of jsonl, whatever it is called."""
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError) and error.msg == "Extra data":
            yield from _read_jsonl(path, columns)
            return
        raise TaskError(
            f"{path}: not a JSON value ({error}); SQuAD's json, or a list of objects, is needed"
        ) from error
    if isinstance(content, list):
        yield from _read_list(path, content, columns)
    else:
        yield from _read_squad(path, content, columns)


def _read_list(path: Path, content: list[Any], columns: Sequence[str]) -> Iterator[Record]:
    for number, fields in enumerate(content):
        where = f"{path}, item {number}"
        if not isinstance(fields, dict):
            raise TaskError(f"{where}: must be a JSON object, found {type(fields).__name__}")
        require_columns(columns, list(fields), where, is_first=number == 0)
        yield where, fields


def _read_squad(path: Path, content: Any, columns: Sequence[str]) -> Iterator[Record]:
    if isinstance(content, dict) and "data" in content:
        require_columns(
            columns, ["question", "context", "answers"], f"{path}, read as SQuAD's questions"
        )
    for title, article in enumerate(_squad_list(content, "data", str(path))):
        place = f"{path}, data {title}"
        for number, paragraph in enumerate(_squad_list(article, "paragraphs", place)):
            inner = f"{place}, paragraph {number}"
            for order, question in enumerate(_squad_list(paragraph, "qas", inner)):
                where = f"{inner}, question {order}"
                if not isinstance(question, dict):
                    raise TaskError(
                        f"{where}: must be a JSON object, found {type(question).__name__}"
                    )
                fields = {"context": paragraph.get("context"), **question}
                require_columns(columns, list(fields), where, is_first=False)
                yield where, fields


def _squad_list(value: Any, key: str, where: str) -> list[Any]:
    """The list under a key of a SQuAD file."""
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, list):
        raise TaskError(
            f"{where}: a JSON object with a list '{key}' is needed, as in SQuAD's files; correct it"
        )
    return found


_READERS: dict[str, Callable[[Path, Sequence[str]], Iterator[Record]]] = {
    ".conll": _read_conll,
    ".csv": _read_csv,
    ".json": _read_json,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
    ".tsv": _read_tsv,
    ".txt": _read_conll,
}
