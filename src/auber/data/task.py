"""A task: its rows, label names and metric, and the checks before anything is trained.

A class label is an index into `label_names`, which is None for regression targets and for answers.
Every loader checks its rows as it reads them, so that an error names the file and the line, and
returns its task through `check_task`.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from auber.data.rows import AnyRows, TextRows, count_labels
from auber.errors import TaskError

logger = logging.getLogger(__name__)

_USUAL_REPEATS = 0.01  # share of train rows that repeat another one, even in careful data


@dataclass(frozen=True)
class TaskData:
    """A task: rows to train on, rows to report scores on, label names and metric."""

    name: str
    train: AnyRows
    dev: AnyRows
    label_names: tuple[str, ...] | None
    metric: str
    # Whether the labels are the unpruned model's answers (`auber.run.answers`), which are
    # placeholders until it has answered.
    is_answered: bool = False
    groups: tuple[str, ...] | None = None  # of the dev rows of texts: what each belongs to
    # The files of train and dev, for messages.
    files: Mapping[str, str] = field(default_factory=dict, compare=False)

    def place(self, split: str) -> str:
        """Return where the rows of a split are from, for messages."""
        return self.files.get(split, f"{self.name}: {split}")

    @property
    def kind(self) -> str:
        """The name of its task type."""
        return self.train.kind

    @property
    def is_regression(self) -> bool:
        """Whether the labels are numbers to predict rather than classes."""
        return self.kind == "sequence" and self.label_names is None

    @property
    def has_classes(self) -> bool:
        """Whether each row has one class to draw rows by; answers are none."""
        return self.kind == "sequence" and self.label_names is not None and not self.is_answered

    @property
    def num_labels(self) -> int:
        """The number of outputs a model needs, for each row or for each token."""
        if self.label_names is not None:
            return len(self.label_names)
        if isinstance(self.train, TextRows):
            vector = self.train.labels[0]
            return 0 if vector is None else len(vector)
        return 2 if self.kind == "spans" else 1  # the start and the end of a span

    @property
    def majority_share(self) -> float | None:
        """The dev accuracy of the most frequent class or tag; None without classes or tags."""
        if self.label_names is None:
            return None
        counts = count_labels(self.dev)
        return max(counts.values()) / counts.total()

    @cached_property
    def content_hash(self) -> str:
        """The SHA-256 of all that a score depends on: rows in order and the meaning of labels.

        Answers are left out: they follow from the texts and the model.
        """
        digest = hashlib.sha256(json.dumps([self.label_names, self.metric]).encode())
        for split, rows in (("train", self.train), ("dev", self.dev)):
            digest.update(f"\n{split}".encode())
            labels = [None] * len(rows) if self.is_answered else rows.labels
            for texts, label in zip(rows.texts(), labels, strict=True):
                digest.update(f"\n{json.dumps([texts, label])}".encode())
        return digest.hexdigest()


def check_task(data: TaskData) -> TaskData:
    """Return the task, or raise `TaskError` if it cannot be used; log a warning on duplicates."""
    check_rows(data)
    trained, names = count_labels(data.train), data.label_names
    if len(trained) == 1:
        (only,) = trained
        label = only if names is None else f"'{names[int(only)]}'"
        raise TaskError(
            f"{data.name}: every label of train is {label}; at least two different ones are needed"
        )
    scored: Sequence[Any] = data.dev.labels if data.has_classes else ()
    for row, number in enumerate(scored):
        if names is not None and number not in trained:
            raise TaskError(
                f"{data.name}: dev row {row}: no row of train is of its class "
                f"'{names[number]}'; add some or leave it out"
            )
    for warning in describe_duplicates(data):
        logger.warning("%s", warning)
    return data


def describe_duplicates(data: TaskData) -> Iterator[str]:
    """Yield a warning if train repeats itself, and one if dev repeats train."""
    known = set(data.train.texts())
    repeated = len(data.train) - len(known)
    if repeated > _USUAL_REPEATS * len(data.train):
        yield (
            f"{repeated} of {len(data.train)} train rows repeat the texts of another row, "
            "so rows that are held out may have been trained on"
        )
    leaked = sum(texts in known for texts in data.dev.texts())
    if leaked:
        yield (
            f"{leaked} of {len(data.dev)} dev rows are also in train, "
            "so their scores say little about new rows"
        )


def check_rows(data: TaskData) -> TaskData:
    """Return the task if its rows can be scored: classes may be missing, as nothing is trained."""
    from auber.metrics.tags import read_scheme  # imports torch, which `auber list` does without
    from auber.metrics.task_metrics import get_metric

    for split, rows in (("train", data.train), ("dev", data.dev)):
        if not len(rows):
            raise TaskError(f"{data.name}: {split} has no rows; at least one is needed")
    names = data.label_names or ()
    if get_metric(data.metric).reads_entities and read_scheme(names) is None:
        strange = next(name for name in names if read_scheme((name,)) is None)
        raise TaskError(
            f"{data.name}: metric {data.metric} needs tags O, B-TYPE and I-TYPE (IOB2), found "
            f"'{strange}'; convert the tags, or choose token_accuracy"
        )
    return data
