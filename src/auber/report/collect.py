"""The finished runs below a folder, read and checked: what every table is made from.

A run's folder holds `run.json`; `result.json` beside it means that it is complete. A run without one, or one that a study wrote
down as failed (`NAME.failed.json` beside its place), is named and left out: nothing partial gets into a table. A result that cannot be read, or that could stand for another of the same name, is an
error and not a gap, because a table that silently lacks it would be believed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auber.errors import RunError
from auber.runs import RESULT, is_run, read_json

FORMAT = 1
FAILED = ".failed.json"


@dataclass(frozen=True)
class RunRecord:
    """One finished run: what it was, how it scored (as the metric gives it), what it took."""

    folder: str  # relative to where the search began
    kind: str
    model: str
    protocol: str
    task: str
    method: str
    seed: int
    draw: int  # of the random method, else 0
    metric: str
    labels: int
    train_rows: int
    dev_rows: int
    data: str  # hash of all rows
    dev: float
    train: float
    majority: float | None  # share of the most frequent dev class; None for a regression
    one_class: bool  # every dev row got the same answer
    removed: int
    tuned_layers: tuple[int, ...]
    rewards_asked: int
    rewards_computed: int
    tuning_steps: int
    seconds: float
    config: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, str, str, str, int, int]:
        """What no two runs of a report may share."""
        return (self.model, self.protocol, self.task, self.method, self.seed, self.draw)

    @property
    def equals_majority(self) -> bool:
        """Whether the accuracy is exactly that of always answering the most frequent class."""
        return self.metric == "accuracy" and self.majority is not None and abs(self.dev - self.majority) < 1e-9


@dataclass(frozen=True)
class LeftOut:
    """A run without a result, and why."""

    folder: str
    reason: str


@dataclass(frozen=True)
class Collection:
    """What a folder holds, sorted: runs to compare, fine-tuned starts (no method of their own), runs without a result."""

    runs: tuple[RunRecord, ...]
    starts: int
    left_out: tuple[LeftOut, ...]


def collect(folder: str | Path) -> Collection:
    """Read every run below a folder."""
    root = Path(folder)
    folders, reasons = _search(root)
    records = []
    for path in folders:
        name = path.relative_to(root).as_posix()
        if (path / RESULT).is_file():
            records.append(_read_record(path / RESULT, name))
            reasons.pop(name, None)
        else:
            reasons.setdefault(name, "unfinished")
    runs = [record for record in records if record.kind == "prune"]
    if not runs:
        raise RunError(
            f"{root}: no finished run below it (folders with run.json and {RESULT}, made by 'auber prune' or 'auber study'); "
            f"found {len(records)} fine-tuned starts and {len(reasons)} runs without a result"
        )
    _check_distinct(runs)
    _check_same_rows(runs)
    runs.sort(key=lambda record: record.key)
    left_out = tuple(LeftOut(name, reason) for name, reason in sorted(reasons.items()))
    return Collection(tuple(runs), len(records) - len(runs), left_out)


def _search(root: Path) -> tuple[list[Path], dict[str, str]]:
    """The folders of runs in the order of their names, and why runs failed; what lies inside a run is its own."""
    if not root.is_dir():
        raise RunError(f"{root}: no such folder; give one that holds runs")
    found: list[Path] = []
    reasons: dict[str, str] = {}
    for place, folders, files in os.walk(root):
        if is_run(place):
            found.append(Path(place))
            folders.clear()
            continue
        for file in files:
            if file.endswith(FAILED):
                path = Path(place, file)
                name = path.relative_to(root).as_posix().removesuffix(FAILED)
                failure = _Fields(path, read_json(path))
                error = failure.get("error", str)
                reasons[name] = error if failure.get("skipped", bool) else f"failed: {error}"
    return sorted(found), reasons


def _check_distinct(runs: list[RunRecord]) -> None:
    first: dict[object, RunRecord] = {}
    for run in runs:
        other = first.setdefault(run.key, run)
        if other is not run:
            draw = f", draw {run.draw}" if run.draw else ""
            raise RunError(
                f"{other.folder} and {run.folder}: two runs of {run.model}, {run.task}, protocol {run.protocol}, {run.method}, "
                f"seed {run.seed}{draw}; a report needs one of each, move one away"
            )


def _check_same_rows(runs: list[RunRecord]) -> None:
    """Scores are paired by task and seed, so both must have been measured on the same rows by the same metric."""
    first: dict[object, RunRecord] = {}
    for run in runs:
        other = first.setdefault((run.task, run.seed), run)
        if (run.data, run.metric) != (other.data, other.metric):
            raise RunError(
                f"{other.folder} and {run.folder}: task {run.task}, seed {run.seed} must have the same rows and metric in all "
                f"runs of a report, found others ({other.metric} and {run.metric}); report them apart"
            )


def _read_record(path: Path, folder: str) -> RunRecord:
    result = read_json(path)
    if not isinstance(result, dict) or result.get("format") != FORMAT:
        found = result.get("format") if isinstance(result, dict) else type(result).__name__
        raise RunError(f"{path}: must be a result of format {FORMAT}, found {found!r}; make the run again")
    read = _Fields(path, result)
    config = read.get("config", dict)
    return RunRecord(
        folder=folder,
        kind=read.get("kind", str),
        model=read.get("model", str),
        protocol=read.get("protocol", str),
        task=read.get("task", str),
        method=read.get("method", str),
        seed=read.get("seed", int),
        draw=_Fields(path, {"draw": config.get("random.draw", 0)}).get("draw", int),
        metric=read.get("metric", str),
        labels=read.get("labels", int),
        train_rows=read.get("rows.train", int),
        dev_rows=read.get("rows.dev", int),
        data=read.get("data", str),
        dev=read.get("dev.score", float),
        train=read.get("train.score", float),
        majority=read.get("dev.majority", float, optional=True),
        one_class=read.get("dev.one_class", bool),
        removed=read.get("heads.removed", int),
        tuned_layers=tuple(read.get("tuned_layers", list)),
        rewards_asked=read.get("cost.rewards_asked", int),
        rewards_computed=read.get("cost.rewards_computed", int),
        tuning_steps=read.get("cost.tuning_steps", int),
        seconds=read.get("cost.seconds.total", float),
        config=config,
    )


class _Fields:
    """Typed access to a result by dotted key; whatever is missing or of another type is named with its file."""

    def __init__(self, path: Path, result: Any) -> None:
        self._path, self._result = path, result

    def get(self, key: str, kind: type, *, optional: bool = False) -> Any:
        value: Any = self._result
        for name in key.split("."):
            if not isinstance(value, dict) or name not in value:
                raise RunError(f"{self._path}: lacks '{key}'; it is damaged or of another version, make the run again")
            value = value[name]
        if optional and value is None:
            return None
        if kind is float and type(value) is int:
            value = float(value)
        good = type(value) is kind
        if isinstance(value, float):
            good = good and math.isfinite(value)
        elif isinstance(value, str):
            good = good and value.isprintable()  # names end up in tables, on terminals and in headings
        if not good:
            wanted = {float: "a finite number", int: "a whole number", str: "printable text", bool: "true or false"}
            raise RunError(
                f"{self._path}: '{key}' must be {wanted.get(kind, f'a {kind.__name__}')}, found {value!r:.40}; "
                "it is damaged, make the run again"
            )
        return value
