"""A task: its rows, the names of its labels and its metric, and what must hold before anything is trained.

`TaskData` is a value: immutable, with a hash of its content that does not depend on the machine. Its kind is that of its
rows (`rows.py`). A class label is an index into `label_names`; a regression target is a float and `label_names` is None, as
it is where the answers are spans. Every loader hands its result through `check_task`, so that the rest of the library never
meets an empty text or a missing class.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from auber.data.rows import AnyRows, Rows, check_text
from auber.errors import TaskError

__all__ = ["Rows", "TaskData", "check_task", "check_text"]

logger = logging.getLogger(__name__)

_FEW = 0.01  # of train's rows: as many repetitions as stand in data that was made with care


@dataclass(frozen=True)
class TaskData:
    """A task: rows to train on, rows to report on, the names of its labels and its metric."""

    name: str
    train: AnyRows
    dev: AnyRows
    label_names: tuple[str, ...] | None
    metric: str

    @property
    def kind(self) -> str:
        """What a row of it is: one of `kinds.KINDS`."""
        return self.train.kind

    @property
    def is_regression(self) -> bool:
        """Whether the labels are numbers to predict rather than classes."""
        return self.kind == "sequence" and self.label_names is None

    @property
    def has_classes(self) -> bool:
        """Whether each row is of one class."""
        return self.kind == "sequence" and self.label_names is not None

    @property
    def num_labels(self) -> int:
        """How many outputs a model of this task has, for each row or for each token."""
        if self.label_names is not None:
            return len(self.label_names)
        return 2 if self.kind == "spans" else 1  # the start and the end of a span

    @property
    def majority_share(self) -> float | None:
        """The dev accuracy of always answering the most frequent class or tag; None where there are none."""
        if self.label_names is None:
            return None
        counts = self.dev.count_labels()
        return max(counts.values()) / counts.total()

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
    check_rows(data)
    _check_classes(data)
    for doubt in find_doubts(data):
        logger.warning("%s", doubt)
    return data


def find_doubts(data: TaskData) -> Iterator[str]:
    """What a reader of scores on these rows should know, though they can be used."""
    known = set(data.train.texts())
    again = len(data.train) - len(known)
    if again > _FEW * len(data.train):
        yield (
            f"careful: {again} of {len(data.train)} train rows have the texts of another one: of rows held out of a tuning, some may "
            "be known to it"
        )
    repeated = sum(texts in known for texts in data.dev.texts())
    if repeated:
        yield f"careful: {repeated} of {len(data.dev)} dev rows also stand in train: a score on them says little of new rows"


def check_rows(data: TaskData) -> TaskData:
    """What must hold of rows that are only scored: of a class there may be none, and nothing is learned from train."""
    for split, rows in (("train", data.train), ("dev", data.dev)):
        where = f"{data.name}: {split}"
        if rows.kind != data.kind:
            raise TaskError(
                f"{where} must hold rows of kind {data.kind}, as train does, found {rows.kind}"
            )
        if not len(rows):
            raise TaskError(f"{where} has no rows; at least one is needed")
        rows.check(where, data.label_names)
    _check_metric(data)
    return data


def _check_metric(data: TaskData) -> None:
    """Now rather than when a model has been trained."""
    from auber.metrics.tags import read_scheme
    from auber.metrics.task_metrics import (
        METRICS,
        get_metric,
    )  # with torch, which listing the tasks does without

    metric = get_metric(data.metric)
    if metric.kind != data.kind:
        fitting = ", ".join(name for name, other in METRICS.items() if other.kind == data.kind)
        raise TaskError(
            f"{data.name}: rows of kind {data.kind} are scored by one of {fitting}, found the metric {metric.name}"
        )
    if metric.reads_entities and read_scheme(data.label_names or ()) is None:
        strange = next(name for name in data.label_names or () if read_scheme((name,)) is None)
        raise TaskError(
            f"{data.name}: metric {metric.name} needs tags O, B-TYPE and I-TYPE (IOB2), found '{strange}'; convert the tags, "
            "or choose token_accuracy"
        )


def _check_classes(data: TaskData) -> None:
    trained = data.train.count_labels()
    if len(trained) == 1:
        (only,) = trained
        if data.label_names is None:
            raise TaskError(
                f"{data.name}: every target of train is {only}; there is nothing to learn"
            )
        name = data.label_names[int(only)]
        if data.has_classes:
            raise TaskError(
                f"{data.name}: every row of train is of class '{name}'; at least two classes are needed"
            )
        raise TaskError(
            f"{data.name}: every word of train has the tag '{name}'; at least two tags are needed"
        )
    if not data.has_classes:
        return
    assert data.label_names is not None
    for row, label in enumerate(data.dev.labels):
        if label not in trained:
            name = data.label_names[int(label)]
            raise TaskError(
                f"{data.name}: dev row {row}: no row of train is of its class '{name}'; add some or leave it out"
            )
