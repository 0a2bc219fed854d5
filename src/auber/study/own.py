"""Tasks of a study that are rows of your own: the files that its file names, and the digest by which its record knows them.

    [tasks.films]                             # a table for each task, those of the known ones may be empty
    train = "train.csv"                       # as --train of 'auber prune', and likewise all below
    dev = "dev.csv"
    text = ["question", "answer"]             # optional, as are label, labels, kind and metric
    rows = "77ab3c..."                        # the digest of the rows, as the folder's record has it: others are refused
    first.epochs = 2                          # settings of this task alone

A record has the digest in place of the files: where rows lie is no part of a study.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from auber.config import settings, show_name, show_value
from auber.data import TASKS, TaskData
from auber.data.user_rows import UserFiles
from auber.errors import AuberError, TaskError, unknown_name

DIGEST = "rows"
FILE_KEYS = tuple(field.name for field in fields(UserFiles))
KEYS = (*FILE_KEYS, DIGEST)  # of a task's table; all others are settings

_LISTS = ("text", "labels")
_LONGEST_VALUE = 1000
_REPORT = "report"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")


@dataclass(frozen=True)
class OwnTask:
    """Rows of your own in a study."""

    files: UserFiles | None  # None: as a record tells of them
    rows: str | None = (
        None  # digest of all that a score depends on; None while nobody has read them
    )

    @property
    def is_there(self) -> bool:
        """Whether there are files to read."""
        return self.files is not None and self.files.train.is_file() and self.files.dev.is_file()

    def load(self, name: str) -> TaskData:
        """The task, if its rows are those that are meant; all that is wrong is a `TaskError` that names its table."""
        if self.files is None:
            raise TaskError(
                f"tasks.{name}: its rows are known by their digest alone; name their files as train and dev"
            )
        try:
            task = self.files.read(name)
        except AuberError as error:
            raise TaskError(f"tasks.{name}: {in_keys(error)}") from error
        if self.rows not in (None, task.content_hash):
            raise TaskError(
                f"tasks.{name}: rows must be those of its files, found {self.rows} and in {self.files.train} and {self.files.dev} "
                f"{task.content_hash}; give the files that were meant, or leave rows out"
            )
        return task

    def resolved(self) -> OwnTask:
        """The same with paths that mean the same wherever a worker stands."""
        if self.files is None:
            return self
        # A link keeps its name, whose ending says how the file is read.
        train, dev = self.files.train.absolute(), self.files.dev.absolute()
        return replace(self, files=replace(self.files, train=train, dev=dev))

    def to_table(self) -> dict[str, Any]:
        """The digest, where it is known; else what the files are and how they are read."""
        if self.rows is not None or self.files is None:
            return {DIGEST: self.rows}
        found = {key: getattr(self.files, key) for key in FILE_KEYS}
        return {
            key: value if isinstance(value, tuple) else str(value)
            for key, value in found.items()
            if value is not None
        }


def read_own(name: str, table: Mapping[str, Any], problems: list[str]) -> OwnTask:
    """What a task's table says of its rows; what is wrong with it is added to the problems."""
    where = f"tasks.{show_name(name)}"
    given = {key: table[key] for key in table if key in KEYS}
    known = {*KEYS, *(setting.key.partition(".")[0] for setting in settings())}
    before = len(problems)
    problems += [
        f"{where}: {unknown_name('key', show_name(key), known)}"
        for key in table
        if key not in known
    ]
    if name in TASKS:
        problems.append(
            f"{where}: {next(iter(given))} is for rows of your own, {name} is a known task; give yours another name"
        )
    elif not _NAME.fullmatch(name):
        problems.append(
            f"{where}: your own rows have a folder by their name, which must be 1 to 100 of a-z, A-Z, 0-9, _ and -, the first no -; "
            "choose another"
        )
    elif name == _REPORT:
        problems.append(
            f"{where}: that folder of a study is for what 'auber report' writes; choose another name"
        )
    for key, value in given.items():
        if not _is_text(value) and not (
            key in _LISTS and isinstance(value, list) and all(map(_is_text, value))
        ):
            wanted = "text or a list of it" if key in _LISTS else "text"
            problems.append(f"{where}: {key} must be {wanted}, found {show_value(value)}")
    digest = given.get(DIGEST)
    named = {key: value for key, value in given.items() if key != DIGEST}
    if len(problems) > before or (digest is not None and not named):
        return OwnTask(None, digest)
    try:
        return OwnTask(UserFiles.named(**named), digest)
    except TaskError as error:
        problems.append(f"{where}: {in_keys(error)}")
        return OwnTask(None, digest)


def in_keys(error: AuberError) -> str:
    """A message in which the options of a command are the keys of a table, which have no dashes."""
    return re.sub(rf"--({'|'.join(FILE_KEYS)})\b", r"\1", str(error))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable() and 1 <= len(value) <= _LONGEST_VALUE
