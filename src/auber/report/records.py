"""A finished run as one record, from its `result.json` or from a line of a results file.

A record names models and data but holds no path of the machine that computed it.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field, model_validator

from auber.errors import RunError
from auber.run.records import MOST_HEADS, Plan, Share, require_heads
from auber.run.result_record import (
    AgreementRecord,
    ComparedRecord,
    NeuronCounts,
    RemainingSize,
    ResultRecord,
    ScoreRecord,
)
from auber.run.stage_record import HeldOutRecord
from auber.run.summary import name_measure
from auber.system.records import Count, Name, Number, Record, Whole, parse, read

DATA = "GLUE"  # replaces the folder of the data in commands
REMEDY = "make the run again"

RunKey = tuple[str, str, str, str, int, int]  # model, protocol, task, method, seed, draw

CONTROL = "original+tuning"  # the reference: the same tuning without pruning
SUBJECT = "auber"  # the method that a report is about
CONTROLS = ("original", CONTROL)  # they remove nothing
MATCHED = ("random", "confidence", "michel", "voita")  # with as many heads as the subject
_ORDER = (
    *CONTROLS, SUBJECT, *MATCHED, "fisher", "greedy", "exhaustive",
    *("auber-query", "auber-key", "auber-l2", "auber-reverse"),
)  # fmt: skip


def is_ablation(method: str) -> bool:
    """Return whether a method is the subject with one thing changed."""
    return method.startswith(f"{SUBJECT}-")


def ordered(methods: Iterable[str]) -> list[str]:
    """Sort methods as in the paper, unknown ones last by name."""
    places = {name: place for place, name in enumerate(_ORDER)}
    return sorted(methods, key=lambda name: (places.get(name, len(places)), name))


Item = TypeVar("Item")
Group = TypeVar("Group")


def group(items: Iterable[Item], key: Callable[[Item], Group]) -> dict[Group, list[Item]]:
    """Group items by a key in the order they come."""
    groups: dict[Group, list[Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(groups)


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 run`, `2 runs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class Origin(Record):
    """The environment that a run was computed in."""

    command: Name | None  # None if it was started from Python
    commit: Name | None  # with a final `+` if the tree differed; None for an installed package
    device: Name
    precision: Name
    threads: Count
    versions: dict[Name, Name]

    @property
    def facts(self) -> dict[str, str]:
        """Command, commit and device as text."""
        commit = "none recorded"
        if self.commit is not None:
            commit = self.commit[:12] + (" with changes" if self.commit.endswith("+") else "")
        return {
            "command": self.command or "started from Python",
            "commit": commit,
            "device": f"{self.device}, {self.precision}, {count(self.threads, 'CPU thread')}",
        }

    @property
    def packages(self) -> str:
        """The versions of the packages."""
        return ", ".join(f"{name} {version}" for name, version in self.versions.items())


class Size(Record):
    """One of the sizes that a run made."""

    model_config = ConfigDict(extra="ignore")  # a result records more of it

    keep: Share
    dev: ScoreRecord
    remaining: RemainingSize
    plan: Plan | None = Field(default=None, exclude=True)  # long, so not in a results file
    after: ComparedRecord | None = None
    agreement: AgreementRecord | None = None
    held_out: HeldOutRecord | None = None


class RunRecord(Record):
    """What a run was, its scores (of the metric), its cost and settings, in the file's order."""

    folder: Name  # relative to the folder that was searched
    kind: Literal["prune", "finetune"]
    model: Name
    protocol: Name
    task: Name
    method: Name
    seed: Whole
    draw: Whole  # of the random method, else 0
    metric: Name
    answered: bool = False  # without labels: the score is the agreement with the unpruned model
    labels: Count
    train_rows: Count
    dev_rows: Count
    data: Name  # digest of all rows
    start: Name  # digest of the fine-tuned weights
    dev: Number
    train: Number
    majority: Number | None  # share of the most frequent dev class; None for a regression
    one_class: bool  # every dev row got the same answer
    layers: Annotated[int, Field(ge=1, le=MOST_HEADS)]
    heads: Annotated[int, Field(ge=1, le=MOST_HEADS)]  # of each layer before pruning
    removed: Count
    plan: Plan
    neurons: NeuronCounts | None = None  # like `remaining`, unknown in runs of the first edition
    remaining: RemainingSize | None = None
    before: ComparedRecord | None = None  # the fine-tuned model
    after: ComparedRecord | None = None
    agreement: AgreementRecord | None = None
    sizes: tuple[Size, ...] = ()
    tuned_layers: tuple[Count, ...]
    rewards_asked: Count
    rewards_computed: Count
    tuning_steps: Count
    scout_steps: Count = 0  # of fold models
    times: dict[Name, Number]  # seconds by what they were spent on, and their total
    peak_gpu_bytes: Count | None  # None if it was not recorded
    origin: Origin
    config: dict[str, Any]

    @model_validator(mode="after")
    def _check_sizes(self) -> RunRecord:
        require_heads(self.layers, self.heads)
        if "total" not in self.times:
            raise ValueError("must have the seconds in total under 'times'")
        return self

    @property
    def key(self) -> RunKey:
        """Identifies a run; two runs of a report must differ in it."""
        return (self.model, self.protocol, self.task, self.method, self.seed, self.draw)

    @property
    def is_start(self) -> bool:
        """Whether it is a fine-tuned model that other runs start from, without a method."""
        return self.kind == "finetune"

    @property
    def title(self) -> str:
        """The method, or that it is a start."""
        return "Fine-tuned start" if self.is_start else self.method

    @property
    def measure(self) -> str:
        """What the scores are."""
        return name_measure(self.metric, answered=self.answered)

    @property
    def device(self) -> str:
        """The device in words."""
        return "a CPU" if self.origin.device == "cpu" else self.origin.device

    @property
    def share_left(self) -> float:
        """The share of the multiply-adds that is left, or of the heads in the first edition."""
        if self.remaining is not None:
            return self.remaining.multiply_adds
        return 1 - self.removed / (self.layers * self.heads)

    @property
    def is_sized(self) -> bool:
        """Whether neurons were removed too, so that heads alone are no measure of the size."""
        return self.neurons is not None and self.neurons.removed > 0

    @property
    def chosen(self) -> Size | None:
        """The size of the run's model, if the run made several."""
        return next((size for size in self.sizes if size.remaining == self.remaining), None)

    @property
    def seconds(self) -> float:
        """The total time."""
        return self.times["total"]

    @property
    def above_constant(self) -> float:
        """How far the dev score is above that of a constant answer."""
        if self.one_class:
            return 0.0
        constant = self.majority if self.metric == "accuracy" and self.majority is not None else 0.0
        return self.dev - constant

    @property
    def equals_majority(self) -> bool:
        """Whether the accuracy is exactly that of always giving the most frequent class."""
        return (
            self.metric == "accuracy"
            and self.majority is not None
            and abs(self.dev - self.majority) < 1e-9
        )

    def __str__(self) -> str:
        what = "fine-tuned start" if self.is_start else self.method
        draw = f", draw {self.draw}" if self.draw else ""
        place = f"{self.model}, {self.task}, protocol {self.protocol}"
        return f"{place}, {what}, seed {self.seed}{draw}"

    def renamed(self, model: str) -> RunRecord:
        """Return the run with another name for its model."""
        command = self.origin.command and strip_paths(self.origin.command, model)
        origin = self.origin.model_copy(update={"command": command})
        return self.model_copy(update={"model": model, "origin": origin})


def read_run(path: Path, folder: str) -> RunRecord:
    """Return the record of a `result.json`; `folder` is the place of its run."""
    found = read(ResultRecord, path, REMEDY)
    commit = found.provenance.commit
    content = found.to_json()
    values = {
        **content,
        **content["cost"],
        "folder": folder,
        "draw": found.config.get("random.draw", 0),
        "train_rows": found.rows.train,
        "dev_rows": found.rows.dev,
        "dev": found.dev.score,
        "train": found.train.score,
        "majority": found.dev.majority,
        "one_class": bool(found.dev.one_class),
        "layers": found.heads.layers,
        "heads": found.heads.per_layer,
        "removed": found.heads.removed,
        "times": found.cost.seconds,
        "origin": {
            **{name: content["provenance"].get(name) for name in Origin.model_fields},
            "command": found.command and strip_paths(found.command, found.model),
            "commit": commit and f"{commit.id}{'+' * commit.dirty}",
        },
    }
    known = {name: values[name] for name in RunRecord.model_fields if name in values}
    return parse(RunRecord, known, str(path), REMEDY)


def strip_paths(command: str, model: str) -> str:
    """Return a command that can be typed anywhere: folders become names, the data's `GLUE`."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise RunError(
            f"the command {command!r:.60} cannot be parsed ({error}); {REMEDY}"
        ) from error
    names = {"--model": model, "--data": DATA}

    def strip(option: str, value: str) -> str:
        is_path = option == "--out" or value.startswith(("/", "~", ".."))
        return names.get(option, Path(value).name if is_path else value)

    found = []
    for before, word in zip(("", *words), words, strict=False):
        option, equals, value = word.partition("=")
        is_joined = bool(equals) and option.startswith("-")
        found.append(f"{option}={strip(option, value)}" if is_joined else strip(before, word))
    return shlex.join(found)
