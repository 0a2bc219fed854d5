"""The table of a task in a study file: `[tasks.NAME]`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from auber.config import flatten_tables, settings, show_name
from auber.data import TaskData, make_task
from auber.data.user_rows import split_names
from auber.errors import AuberError, TaskError, suggest
from auber.system.records import Name, Record

LONGEST_NAME = 1000  # of a model or a folder; no system opens longer ones


def _require_path(path: Any) -> Any:
    if not isinstance(path, (str, Path)) or not str(path).isprintable():
        raise ValueError("must be a printable path")
    return path


TextField = Annotated[Name, Field(min_length=1, max_length=LONGEST_NAME)]
PathField = Annotated[Path, Field(strict=False), BeforeValidator(_require_path)]
Columns = Annotated[tuple[TextField, ...], BeforeValidator(split_names)]


class StudyTask(Record):
    """The table `[tasks.NAME]`: the files of your own rows, and settings of this task alone.

    The keys are the options of `auber prune`. The record of a study has the digest of the rows in
    place of the files, because where they are does not matter. All other keys are settings.
    """

    model_config = ConfigDict(extra="allow")

    train: PathField | None = None
    dev: PathField | None = None
    kind: TextField | None = None
    text: Columns | None = None
    label: TextField | None = None
    labels: Columns | None = None
    metric: TextField | None = None
    rows: TextField | None = (
        None  # digest of all that a score depends on; None until the rows are read
    )

    @model_validator(mode="after")
    def _check(self) -> StudyTask:
        sections = {info.key.partition(".")[0] for info in settings()}
        for key in self.model_extra or {}:
            if key.partition(".")[0] not in sections:
                near = suggest(key, sections | set(_TABLE_KEYS))
                raise ValueError(f"has the unknown key '{show_name(key)}'.{near}")
        _ = self.settings  # a ValueError if its tables are nested too deep
        if self.is_own and (self.train is None or self.dev is None):
            given = [key for key in _FILE_KEYS if getattr(self, key) is not None]
            if given:
                raise ValueError(
                    f"must name both files of your own rows, train and dev, found {given[0]}"
                )
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings of this task by dotted key."""
        return flatten_tables(self.model_extra or {})

    @property
    def is_own(self) -> bool:
        """Return whether the task is rows of your own."""
        return any(getattr(self, key) is not None for key in _TABLE_KEYS)

    @property
    def has_files(self) -> bool:
        """Return whether there are files to read."""
        return all(path is not None and path.is_file() for path in (self.train, self.dev))

    def load(self, name: str) -> TaskData:
        """Return the rows; raise `TaskError` if they are wrong or not those of the digest."""
        if self.train is None:
            raise TaskError(
                f"tasks.{name}: only the digest of its rows is known; name the files train and dev"
            )
        try:
            task = make_task(name=name, **{key: getattr(self, key) for key in _FILE_KEYS})
        except AuberError as error:
            # In a table, options are keys.
            message = re.sub(rf"--({'|'.join(_FILE_KEYS)})\b", r"\1", str(error))
            raise TaskError(f"tasks.{name}: {message}") from error
        if self.rows not in (None, task.content_hash):
            raise TaskError(
                f"tasks.{name}: the rows of {self.train} and {self.dev} must have the digest "
                f"{self.rows}, found {task.content_hash}; restore the files or remove rows"
            )
        return task

    def to_table(self) -> dict[str, Any]:
        """Return the table as recorded: the digest, or the files while it is unknown."""
        keys = ("rows",) if self.rows is not None else _FILE_KEYS
        named = {key: getattr(self, key) for key in keys if getattr(self, key) is not None}
        return {**named, **self.settings}


_TABLE_KEYS = tuple(StudyTask.model_fields)
_FILE_KEYS = tuple(key for key in _TABLE_KEYS if key != "rows")
