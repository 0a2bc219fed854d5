"""The result file of `auber rates`: what was asked, under which conditions, every trial, and where it comes from.

A trial is known by its task, seed and rate. A file holds trials made under the same conditions (model, held-out share, device,
precision, threads; rows and tuning settings of a task) and may be added to: by the rest of a grid that was cut, or by
more tasks, seeds and rates. It holds no path of the machine it was made on.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from auber.errors import RunError
from auber.run.fields import Fields

FORMAT = 1
KIND = "rates"

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Conditions:
    """What all trials of a file share."""

    model: str
    weights: str  # digest of the encoder, without a classifier
    held_out: float  # share of train
    device_type: str
    precision: str
    threads: int


@dataclass(frozen=True)
class TaskRecord:
    """A task as it was tried, with the settings its tuning has apart from the rate."""

    name: str
    metric: str
    data: str  # digest of all its rows
    rows_tuned: int
    rows_held_out: int
    epochs: int
    batch_size: int
    max_length: int


@dataclass(frozen=True)
class Trial:
    """One tuning and its score on the held-out rows."""

    task: str
    seed: int
    rate: float
    score: float
    loss: float | None  # None where the tuning diverged, so that it is no number
    one_class: bool  # every held-out row got the same answer
    majority: float  # the score of always giving the most frequent answer of the rows tuned on
    steps: int
    seconds: float  # of the tuning

    @property
    def key(self) -> tuple[str, int, float]:
        """What tells it from others of its file."""
        return self.task, self.seed, self.rate


@dataclass(frozen=True)
class Record:
    """A result file. `trials` and `tasks` may hold more than the last call asked for, or not yet all of it."""

    command: str | None
    conditions: Conditions
    asked_tasks: tuple[str, ...]
    asked_rates: tuple[float, ...]
    asked_seeds: tuple[int, ...]
    tasks: tuple[TaskRecord, ...]
    trials: tuple[Trial, ...]
    provenance: dict[str, Any]

    @property
    def missing(self) -> list[tuple[str, int, float]]:
        """The keys of what was asked and not tried yet: seed after seed, so that a call that was cut has whole grids."""
        tried = {trial.key for trial in self.trials}
        asked = [
            (task, seed, rate)
            for seed in self.asked_seeds
            for task in self.asked_tasks
            for rate in self.asked_rates
        ]
        return [key for key in asked if key not in tried]

    def add(self, trial: Trial) -> Record:
        """The record with one trial more."""
        return dataclasses.replace(self, trials=(*self.trials, trial))

    def to_json(self) -> dict[str, Any]:
        """A plain JSON object."""
        return {"format": FORMAT, "kind": KIND, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, data: Any, where: str) -> Record:
        """The record of `to_json`, whatever was added to it; anything else raises `RunError` naming `where`."""
        if not isinstance(data, dict) or data.get("kind") != KIND:
            raise RunError(
                f"{where}: must be a result of 'auber rates', found something else; choose another --out"
            )
        if data.get("format") != FORMAT:
            raise RunError(
                f"{where}: format {FORMAT} can be read, found {data.get('format')!r}; choose another --out"
            )
        try:
            return cls(
                command=_checked("command", data["command"], str | None),
                conditions=_build(Conditions, data["conditions"]),
                asked_tasks=_items("asked_tasks", data, str),
                asked_rates=_items("asked_rates", data, float),
                asked_seeds=_items("asked_seeds", data, int),
                tasks=tuple(_build(TaskRecord, item) for item in _items("tasks", data, dict)),
                trials=tuple(_build(Trial, item) for item in _items("trials", data, dict)),
                provenance=_checked("provenance", data["provenance"], dict),
            )
        except (KeyError, TypeError) as error:
            raise RunError(f"{where}: is damaged ({error}); choose another --out") from error


def read_record(path: Path) -> Record:
    """The record of a file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path}: cannot be read as JSON ({error}); choose another --out") from error
    return Record.from_json(data, str(path))


def go_on(earlier: Record, asked: Record, where: str) -> Record:
    """What is asked together with what an earlier file has; `RunError` where they cannot stand in one file."""
    changed = _changes(earlier.conditions, asked.conditions)
    old = {task.name: task for task in earlier.tasks}
    for task in asked.tasks:
        if task.name in old:
            changed += [f"{task.name}: {change}" for change in _changes(old[task.name], task)]
    if changed:
        raise RunError(
            f"{where}: holds trials of another kind: {', '.join(changed)}; use the same or another --out"
        )
    tasks = {**old, **{task.name: task for task in asked.tasks}}
    record = dataclasses.replace(asked, tasks=tuple(tasks.values()), trials=earlier.trials)
    if not record.missing:
        return dataclasses.replace(
            record, provenance=earlier.provenance
        )  # nothing comes from this call
    _require_same_versions(earlier.provenance, asked.provenance, where)
    return record


def _require_same_versions(was: dict[str, Any], now: dict[str, Any], where: str) -> None:
    """Raise `RunError` where new trials would stand under versions that did not make the older ones, or the other way round."""
    before, after = (Fields(where, provenance) for provenance in (was, now))
    for name in ("torch", "transformers"):
        old, new = (fields.find(f"versions.{name}", str) for fields in (before, after))
        if old is not None and new is not None and old != new:
            raise RunError(
                f"{where}: its trials were made with {name} {old}, and this is {new}; use that version or another --out"
            )


def _changes(was: Any, now: Any) -> list[str]:
    """The fields in which two records of a type differ, in words."""
    names = [item.name for item in dataclasses.fields(was)]
    pairs = [(name, getattr(was, name), getattr(now, name)) for name in names]
    return [
        f"{name} was {before!r} and is now {after!r}"
        for name, before, after in pairs
        if before != after
    ]


def _build(kind: type[_Item], data: Any) -> _Item:
    """A flat record out of JSON; `TypeError` where a field is missing, unknown or of another type."""
    hints = typing.get_type_hints(kind)
    for name, value in _checked(kind.__name__, data, dict).items():
        if name not in hints:
            raise TypeError(f"{kind.__name__} has no {name!r:.40}")
        _checked(name, value, hints[name])
    return kind(**data)


def _items(name: str, data: dict[str, Any], kind: Any) -> tuple[Any, ...]:
    """The entries of a list, all of one type."""
    return tuple(_checked(name, item, kind) for item in _checked(name, data[name], list))


def _checked(name: str, value: Any, kind: Any) -> Any:
    """The value, or a `TypeError` that names it where it is of another type; true and false are no numbers."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{name} {value!r:.40}")
    return value
