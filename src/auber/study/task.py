"""The table of a task in a study file: `[tasks.NAME]`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from auber.config import flatten_tables, settings
from auber.data import TaskData, make_task, make_texts
from auber.data.user_rows import split_names
from auber.errors import AuberError, TaskError, show_name, suggest
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
    texts: PathField | None = None
    group: TextField | None = None
    # That the rows are texts without labels, in a record, which has no files.
    answered: Literal[True] | None = None
    # The digest of all that a score depends on; None until the rows are read.
    rows: TextField | None = None

    @model_validator(mode="after")
    def _check(self) -> StudyTask:
        sections = {info.key.partition(".")[0] for info in settings()}
        for key in self.model_extra or {}:
            if key.partition(".")[0] not in sections:
                near = suggest(key, sections | set(_TABLE_KEYS))
                raise ValueError(f"has the unknown key '{show_name(key)}'.{near}")
        _ = self.settings  # a ValueError if its tables are nested too deep
        if self.texts is not None:
            given = [key for key in _LABELLED_KEYS if getattr(self, key) is not None]
            if given:
                raise ValueError(
                    f"must have texts, or rows with labels, found both texts and {given[0]}"
                )
        elif self.is_own and (self.train is None or self.dev is None):
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
        paths = (self.texts,) if self.is_answered else (self.train, self.dev)
        return all(path is not None and path.is_file() for path in paths)

    @property
    def is_answered(self) -> bool:
        """Return whether the rows are texts without labels."""
        return self.texts is not None or self.answered is True

    def load(self, name: str, model: str) -> TaskData:
        """Return the rows; raise `TaskError` if they are wrong or not those of the digest.

        The task type of texts is that of the model.
        """
        if self.train is None and self.texts is None:
            files = "the file texts" if self.is_answered else "the files train and dev"
            raise TaskError(f"tasks.{name}: only the digest of its rows is known; name {files}")
        try:
            if self.texts is not None:
                from auber.run.answers import describe_task  # imports torch

                texts = make_texts(self.texts, text=self.text, group=self.group, name=name)
                task = describe_task(texts, model)
            else:
                options = {key: getattr(self, key) for key in ("text", *_LABELLED_KEYS)}
                task = make_task(name=name, **options)
        except AuberError as error:
            # In a table, options are keys.
            message = re.sub(rf"--({'|'.join(_FILE_KEYS)})\b", r"\1", str(error))
            raise TaskError(f"tasks.{name}: {message}") from error
        if self.rows not in (None, task.content_hash):
            place = self.texts or f"{self.train} and {self.dev}"
            raise TaskError(
                f"tasks.{name}: the rows of {place} must have the digest {self.rows}, found "
                f"{task.content_hash}; restore the files or remove rows"
            )
        return task

    def to_table(self) -> dict[str, Any]:
        """Return the table as recorded: the digest, or the files while it is unknown."""
        keys = ("rows",) if self.rows is not None else _FILE_KEYS
        named = {key: getattr(self, key) for key in keys if getattr(self, key) is not None}
        if self.rows is not None and self.is_answered:
            named["answered"] = True
        return {**named, **self.settings}


_TABLE_KEYS = tuple(StudyTask.model_fields)
_FILE_KEYS = tuple(key for key in _TABLE_KEYS if key not in ("rows", "answered"))
_LABELLED_KEYS = ("train", "dev", "kind", "label", "labels", "metric")
