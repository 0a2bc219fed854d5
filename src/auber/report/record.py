"""One finished run as a typed value: out of its `result.json`, and to one line of a results file and back.

A record names no place of the machine that made it: models and data are named, not located. Whatever is missing, of another
type or not finite is an error that names its file, because a table that silently lacked it would be believed.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from auber.errors import RunError
from auber.report.coverage import Key
from auber.run.fields import Fields
from auber.run.files import read_json

FORMAT = 1  # of result.json
PRUNE = "prune"  # the kind of a run with a method; the other one is a fine-tuned start

DATA = "GLUE"  # stands in a command for the data's folder, wherever that was


@dataclass(frozen=True)
class Origin:
    """Where the numbers of a run come from."""

    command: str | None  # as it can be typed anywhere; None for a run that was started from Python
    commit: (
        str | None
    )  # of the source tree, with `+` behind it if the tree differed; None for an installed package
    device: str
    precision: str
    threads: int
    versions: Mapping[str, str]


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
    start: str  # hash of the fine-tuned weights it began with
    dev: float
    train: float
    majority: float | None  # share of the most frequent dev class; None for a regression
    one_class: bool  # every dev row got the same answer
    layers: int
    heads: int  # of a layer, before any was removed
    removed: int
    plan: Mapping[str, list[int]]
    tuned_layers: tuple[int, ...]
    rewards_asked: int
    rewards_computed: int
    tuning_steps: int
    scout_steps: int  # of tuning the models that are asked for rewards, which nobody keeps
    times: Mapping[str, float]  # seconds by what they went into, and their total
    peak_gpu_bytes: int | None  # None where it was not recorded
    config: Mapping[str, Any]
    origin: Origin

    @property
    def key(self) -> Key:
        """What no two runs of a report may share."""
        return (self.model, self.protocol, self.task, self.method, self.seed, self.draw)

    @property
    def is_start(self) -> bool:
        """Whether it is a fine-tuned start, which has no method of its own."""
        return self.kind != PRUNE

    @property
    def seconds(self) -> float:
        """What it took in all."""
        return self.times["total"]

    @property
    def above_constant(self) -> float:
        """What dev has above one answer for all rows: as accuracy, above the most frequent one; of a model that gives one, nothing."""
        if self.one_class:
            return 0.0
        return self.dev - (
            self.majority if self.metric == "accuracy" and self.majority is not None else 0.0
        )

    @property
    def equals_majority(self) -> bool:
        """Whether the accuracy is exactly that of always answering the most frequent class."""
        return (
            self.metric == "accuracy"
            and self.majority is not None
            and abs(self.dev - self.majority) < 1e-9
        )

    @property
    def words(self) -> str:
        """What it is, for people."""
        what = "the fine-tuned start" if self.is_start else self.method
        draw = f", draw {self.draw}" if self.draw else ""
        return (
            f"{self.model}, {self.task}, protocol {self.protocol}, {what}, seed {self.seed}{draw}"
        )

    def named(self, model: str) -> RunRecord:
        """The same run of a model by another name."""
        command = self.origin.command and plain_command(self.origin.command, model)
        return replace(self, model=model, origin=replace(self.origin, command=command))


# Where result.json has what a record has under its own name.
_PLACES: dict[str, tuple[str, type]] = {
    "kind": ("kind", str),
    "model": ("model", str),
    "protocol": ("protocol", str),
    "task": ("task", str),
    "method": ("method", str),
    "seed": ("seed", int),
    "metric": ("metric", str),
    "labels": ("labels", int),
    "train_rows": ("rows.train", int),
    "dev_rows": ("rows.dev", int),
    "data": ("data", str),
    "start": ("start", str),
    "dev": ("dev.score", float),
    "train": ("train.score", float),
    "one_class": ("dev.one_class", bool),
    "layers": ("heads.layers", int),
    "heads": ("heads.per_layer", int),
    "removed": ("heads.removed", int),
    "rewards_asked": ("cost.rewards_asked", int),
    "rewards_computed": ("cost.rewards_computed", int),
    "tuning_steps": ("cost.tuning_steps", int),
}


def read_result(path: Path, folder: str) -> RunRecord:
    """The record of a `result.json`; `folder` is the run's place below where the search began."""
    result = read_json(path)
    if not isinstance(result, dict) or result.get("format") != FORMAT:
        found = result.get("format") if isinstance(result, dict) else type(result).__name__
        raise RunError(
            f"{path}: must be a result of format {FORMAT}, found {found!r}; make the run again"
        )
    read = Fields(str(path), result)
    config = read.get("config", dict)
    values = {name: read.get(key, kind) for name, (key, kind) in _PLACES.items()}
    command = read.get("command", str, optional=True)
    return RunRecord(
        folder=folder,
        **values,
        draw=Fields(str(path), {"draw": config.get("random.draw", 0)}).get("draw", int),
        majority=read.get("dev.majority", float, optional=True),
        plan=read.get("plan", dict),
        tuned_layers=tuple(read.get("tuned_layers", list)),
        scout_steps=read.find("cost.scout_steps", int) or 0,
        times=read.numbers("cost.seconds"),
        peak_gpu_bytes=read.get("cost.peak_gpu_bytes", int)
        if "peak_gpu_bytes" in read.get("cost", dict)
        else None,
        config=config,
        origin=Origin(
            command=command and plain_command(command, values["model"]),
            commit=_commit(read),
            device=read.get("provenance.device", str),
            precision=read.get("provenance.precision", str),
            threads=read.get("provenance.threads", int),
            versions=read.texts("provenance.versions"),
        ),
    )


def _commit(read: Fields) -> str | None:
    if read.get("provenance.commit", dict, optional=True) is None:
        return None
    return (
        f"{read.get('provenance.commit.id', str)}{'+' * read.get('provenance.commit.dirty', bool)}"
    )


def record_to_json(record: RunRecord, common: Mapping[str, Any]) -> dict[str, Any]:
    """A record as one line of a results file, of its settings only what differs from the common ones."""
    values = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    config = values.pop("config")
    values["settings"] = {
        key: config[key] for key in config if key not in common or common[key] != config[key]
    }
    values["lacking"] = [key for key in common if key not in config]
    values["origin"] = dataclasses.asdict(record.origin)
    return values


def record_from_json(data: Any, common: Mapping[str, Any], where: str) -> RunRecord:
    """The record that `record_to_json` wrote."""
    if not isinstance(data, dict):
        raise RunError(
            f"{where}: must be an object, found {type(data).__name__}; save the results again"
        )
    read = Fields(where, data)
    lacking = read.get("lacking", list)
    own = read.get("settings", dict)
    return RunRecord(
        folder=read.get("folder", str),
        **{name: read.get(name, kind) for name, (_, kind) in _PLACES.items()},
        draw=read.get("draw", int),
        majority=read.get("majority", float, optional=True),
        plan=read.get("plan", dict),
        tuned_layers=tuple(read.get("tuned_layers", list)),
        scout_steps=read.find("scout_steps", int) or 0,  # lines that know of no scouts had none
        times=read.numbers("times"),
        peak_gpu_bytes=read.get("peak_gpu_bytes", int, optional=True),
        config={**{key: value for key, value in common.items() if key not in lacking}, **own},
        origin=Origin(
            command=read.get("origin.command", str, optional=True),
            commit=read.get("origin.commit", str, optional=True),
            device=read.get("origin.device", str),
            precision=read.get("origin.precision", str),
            threads=read.get("origin.threads", int),
            versions=read.texts("origin.versions"),
        ),
    )


def plain_command(command: str, model: str) -> str:
    """A command as it can be typed anywhere: the model by its name, the data as `GLUE`, folders by their last part."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise RunError(
            f"the command {command!r:.60} cannot be taken apart ({error}); make the run again"
        ) from error
    return shlex.join(_plain_words(words, {"--model": model, "--data": DATA}))


def _plain_words(words: list[str], stand_ins: Mapping[str, str]) -> Iterator[str]:
    before = ""
    for word in words:
        option, equals, value = word.partition("=")
        if equals and option.startswith("-"):
            yield f"{option}={_plain_value(option, value, stand_ins)}"
        else:
            yield _plain_value(before, word, stand_ins)
        before = word


def _plain_value(option: str, value: str, stand_ins: Mapping[str, str]) -> str:
    if option in stand_ins:
        return stand_ins[option]
    is_elsewhere = option == "--out" or value.startswith(("/", "~", ".."))
    return Path(value).name if is_elsewhere else value
