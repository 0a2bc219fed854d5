"""The rows of a task, and what must hold of them before anything is trained.

`Rows` and `TaskData` are values: immutable, with a hash of their content that does not depend on the machine.
A class label is an index into `label_names`; a regression target is a float and `label_names` is None. Every loader
hands its result through `check_task`, so that the rest of the library never meets an empty text or a missing class.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from auber.errors import TaskError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rows:
    """Labelled sentences or pairs of sentences; `second` is None where a row is one sentence."""

    first: tuple[str, ...]
    second: tuple[str, ...] | None
    labels: tuple[int, ...] | tuple[float, ...]

    def __post_init__(self) -> None:
        second = len(self.first) if self.second is None else len(self.second)
        if not len(self.first) == second == len(self.labels):
            raise TaskError(
                f"rows: texts and labels must be equally many, found {len(self.first)} first texts, "
                f"{second} second texts and {len(self.labels)} labels"
            )

    def __len__(self) -> int:
        return len(self.first)

    def select(self, indices: Sequence[int]) -> Rows:
        """The rows at these indices, in their order."""
        second = None if self.second is None else tuple(self.second[index] for index in indices)
        labels = tuple(self.labels[index] for index in indices)
        return Rows(tuple(self.first[index] for index in indices), second, labels)

    def texts(self) -> list[tuple[str, ...]]:
        """The texts of each row: one or two."""
        return list(zip(self.first)) if self.second is None else list(zip(self.first, self.second, strict=True))


@dataclass(frozen=True)
class TaskData:
    """A task: rows to train on, rows to report on, the names of its classes and its metric."""

    name: str
    train: Rows
    dev: Rows
    label_names: tuple[str, ...] | None
    metric: str

    @property
    def is_regression(self) -> bool:
        """Whether the labels are numbers to predict rather than classes."""
        return self.label_names is None

    @property
    def num_labels(self) -> int:
        """How many outputs a model of this task has."""
        return 1 if self.label_names is None else len(self.label_names)

    @property
    def majority_share(self) -> float | None:
        """The dev accuracy of always answering the most frequent class; None for regression."""
        if self.is_regression:
            return None
        return max(Counter(self.dev.labels).values()) / len(self.dev)

    @cached_property
    def content_hash(self) -> str:
        """A sha256 of all that a score depends on: rows in their order, and the meaning of their labels."""
        digest = hashlib.sha256(json.dumps([self.label_names, self.metric]).encode())
        for split, rows in (("train", self.train), ("dev", self.dev)):
            digest.update(f"\n{split}".encode())
            for texts, label in zip(rows.texts(), rows.labels, strict=True):
                digest.update(f"\n{json.dumps([texts, label])}".encode())
        return digest.hexdigest()


def check_task(data: TaskData) -> TaskData:
    """The same data, or a `TaskError` that says why it cannot be used; rows in both splits are counted in a warning."""
    for split, rows in (("train", data.train), ("dev", data.dev)):
        where = f"{data.name}: {split}"
        if not len(rows):
            raise TaskError(f"{where} has no rows; at least one is needed")
        for row, (texts, label) in enumerate(zip(rows.texts(), rows.labels, strict=True)):
            for text in texts:
                check_text(text, f"{where} row {row}")
            _check_label(label, data.label_names, f"{where} row {row}")
    _check_classes(data)
    known = set(data.train.texts())
    repeated = sum(texts in known for texts in data.dev.texts())
    if repeated:
        logger.warning("%s: %d of %d dev rows also stand in train", data.name, repeated, len(data.dev))
    return data


def check_text(text: str, where: str) -> None:
    """Raise `TaskError` unless the text holds something a tokenizer can read."""
    if not text.strip():
        raise TaskError(f"{where}: the text is empty; fill it in or leave the row out")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TaskError(
            f"{where}: the text holds half a surrogate pair at character {error.start}; correct it or leave the row out"
        ) from error


def _check_label(label: float, label_names: tuple[str, ...] | None, where: str) -> None:
    if label_names is None:
        if not math.isfinite(label):
            raise TaskError(f"{where}: the target must be a finite number, found {label}; correct it")
    elif not 0 <= label < len(label_names):
        raise TaskError(f"{where}: the label must be from 0 to {len(label_names) - 1}, found {label}; correct it")


def _check_classes(data: TaskData) -> None:
    trained = set(data.train.labels)
    if data.label_names is None:
        if len(trained) == 1:
            raise TaskError(f"{data.name}: every target of train is {data.train.labels[0]}; there is nothing to learn")
        return
    if len(trained) == 1:
        only = data.label_names[int(data.train.labels[0])]
        raise TaskError(f"{data.name}: every row of train is of class '{only}'; at least two classes are needed")
    for row, label in enumerate(data.dev.labels):
        if label not in trained:
            name = data.label_names[int(label)]
            raise TaskError(
                f"{data.name}: dev row {row}: no row of train is of its class '{name}'; add some or leave it out"
            )
