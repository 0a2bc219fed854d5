"""A study: the file that names tasks, methods and seeds, and the runs that follow from it.

A block is one (task, protocol, seed). Its runs share one fine-tuned model, the run `start`, so a
block is what one process works on. `auber` comes next, because the ranking methods and the tuned
control are matched with it: they remove as many heads and have the same tunings. If the settings
have a target size (`size.keep`), the ranking methods prune to it instead.

    model = "bert-base-cased"       # hub name, folder, or "agreement": the generated default
    tasks = ["mrpc", "rte"]         # or a table [tasks.NAME] for each, see `StudyTask`
    methods = ["auber", "random", "original"]  # or your own player, "my_module:MyPlayer"
    seeds = [0, 1, 2]
    preset = "paper"                # this key and those below are optional
    protocols = ["seen"]            # default: the protocol of the preset
    draws = 3                       # of the method random
    data = "glue"                   # a GLUE folder in place of the hub
    keep_weights = false            # delete the model of a finished run
    weights = "9f86d0..."           # digest of the encoder; other weights are refused

    [settings]
    agent.episodes = 50
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, field_validator

from auber.config import (
    PRESETS,
    PROTOCOLS,
    Config,
    Value,
    flatten_tables,
    load_toml,
    make_config,
)
from auber.config.values import parse_only
from auber.data import TASKS, TaskData, load_task
from auber.errors import ConfigError, show_name, show_value, unknown_name
from auber.search.registry import METHODS, outline_method
from auber.study.task import LONGEST_NAME, PathField, StudyTask, TextField
from auber.system.records import Count, Record, validate

GENERATED = "agreement"  # the generated model, and the one task that it can read
START = "start"  # the run that fine-tunes the model shared by a block
REFERENCE = "auber"  # the run whose number of heads and tunings others take over

_OWN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")
_REPORT = "report"  # the folder that `auber report` writes into a study's
# Settings that a study decides for each run: what to write instead.
_DECIDED = {
    "seed": "list it under seeds",
    "protocol": "list it under protocols",
    "random.draw": "set their number as draws",
    "first.when": "a study always fine-tunes first",
}


def _require_distinct(items: Any) -> Any:
    if not items:
        raise ValueError("must name at least one")
    repeated = sorted({show_name(str(item)) for item in items if list(items).count(item) > 1})
    if repeated:
        raise ValueError(f"must name each once; {', '.join(repeated)} is repeated")
    return items


def _require_known(kind: str, known: Collection[str]) -> AfterValidator:
    """Return a validator of names; `module:Name` is a player, which is imported when it runs."""

    def check(names: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [n for n in names if n not in known and not (kind == "method" and ":" in n)]
        if unknown:
            problems = [unknown_name(kind, show_name(name), known) for name in unknown]
            raise ValueError(f"must be known. {'; '.join(problems)}")
        _require_distinct(names)
        return names

    return AfterValidator(check)


Seeds = Annotated[tuple[Count, ...], AfterValidator(_require_distinct)]


@dataclass(frozen=True)
class Block:
    """One (task, protocol, seed): the runs that share a fine-tuned model."""

    task: str
    protocol: str
    seed: int

    @property
    def path(self) -> Path:
        """Return its folder below the study's."""
        return Path(self.task) / self.protocol / f"seed-{self.seed}"

    def __str__(self) -> str:
        return f"{self.task} {self.protocol} seed {self.seed}"


@dataclass(frozen=True)
class StudyRun:
    """One run of a block; its name is the name of its folder."""

    name: str
    method: str | None  # None: the run that fine-tunes
    from_start: bool  # begins with the fine-tuned model of the block, not with the study's model
    is_matched: bool  # takes over the number of heads and the tunings of `auber`
    draw: int = 0

    @property
    def needs(self) -> tuple[str, ...]:
        """Return the runs of the block that must be complete before it."""
        return (START,) * self.from_start + (REFERENCE,) * self.is_matched


PlacedRun = tuple[Block, StudyRun]


class Study(Record):
    """What to compare: tasks x protocols x seeds, and the methods on each."""

    model: TextField
    tasks: dict[str, StudyTask]
    methods: Annotated[tuple[str, ...], _require_known("method", METHODS)]
    seeds: Seeds
    protocols: Annotated[tuple[str, ...], _require_known("protocol", PROTOCOLS)]
    preset: TextField = "default"
    draws: Annotated[int, Field(ge=1, le=1000)] = 1  # each is a run of every block
    settings: Annotated[dict[str, Any], AfterValidator(flatten_tables)] = Field(
        default_factory=dict
    )
    data: PathField | None = None
    keep_weights: bool = True
    weights: TextField | None = None  # digest of the encoder; None until its weights are read

    @field_validator("tasks", mode="before")
    @classmethod
    def _read_names(cls, tasks: Any) -> Any:
        if isinstance(tasks, dict):
            return tasks
        if not isinstance(tasks, list) or not all(isinstance(name, str) for name in tasks):
            raise ValueError("must be a list of names or a table for each task")
        return {name: {} for name in _require_distinct(tasks)}

    @field_validator("tasks")
    @classmethod
    def _check_names(cls, tasks: dict[str, StudyTask]) -> dict[str, StudyTask]:
        unknown = [name for name, task in tasks.items() if not task.is_own and name not in TASKS]
        if unknown:
            problems = [unknown_name("task", show_name(name), TASKS) for name in unknown]
            raise ValueError(f"must be known or rows of your own. {'; '.join(problems)}")
        for name, task in tasks.items():
            if task.is_own and (name in (*TASKS, _REPORT) or not _OWN_NAME.fullmatch(name)):
                raise ValueError(
                    f"must have other names for your own rows than '{show_name(name)}': 1 to 100 "
                    f"of a-z, A-Z, 0-9, _ and -, the first not -, and neither a known task nor "
                    f"'{_REPORT}', the folder of 'auber report'"
                )
        _require_distinct(tasks)
        return tasks

    @property
    def own(self) -> dict[str, StudyTask]:
        """Return the tasks that are rows of your own."""
        return {name: task for name, task in self.tasks.items() if task.is_own}

    @property
    def model_name(self) -> str:
        """Return the model as it is recorded; for a folder, its last part."""
        # Path.exists raises where a name is longer than the system allows.
        return Path(self.model).resolve().name if os.path.exists(self.model) else self.model  # noqa: PTH110

    def blocks(self) -> list[Block]:
        """Return all blocks, seed by seed, so that an unfinished study has some of everything."""
        return [
            Block(task, protocol, seed)
            for seed in self.seeds
            for protocol in self.protocols
            for task in self.tasks
        ]

    def runs(self, block: Block) -> list[StudyRun]:
        """Return the runs of a block in their order."""
        has_start = not self.is_answered(block)
        found = [StudyRun(START, None, from_start=False, is_matched=False)] * has_start
        for name in sorted(self.methods, key=lambda name: name != REFERENCE):
            method = outline_method(name)
            # Under heldout, a control is fine-tuned on the reward rows too.
            from_start = has_start and (method.removes_heads or block.protocol != "heldout")
            is_matched = (
                not method.decides_number
                and method.tunes
                and REFERENCE in self.methods
                and not self.is_sized(block.task)
            )
            if name == "random":
                found += [
                    StudyRun(f"random-{draw}", name, from_start, is_matched, draw)
                    for draw in range(self.draws)
                ]
            else:
                # A player `module:Name` has a folder `module.Name`.
                found.append(StudyRun(name.replace(":", "."), name, from_start, is_matched))
        return found

    def config(self, block: Block, run: StudyRun) -> Config:
        """Return the settings of a run."""
        own: dict[str, Value] = {"seed": block.seed, "protocol": block.protocol}
        is_answered = self.is_answered(block)
        own["first.when"] = "never" if run.from_start or is_answered else "always"
        if run.draw:
            own["random.draw"] = run.draw
        values = {**self.settings_of(block.task), **own}
        if run.method is None or not outline_method(run.method).removes_heads:
            values = {key: value for key, value in values.items() if not key.startswith("size.")}
        # A study compares models that learned nothing too; its result says so.
        otherwise = {"first.require_learned": False}
        return make_config(
            self.preset,
            task=block.task,
            settings=values,
            otherwise=otherwise,
            without_labels=is_answered,
        )

    def is_sized(self, task: str) -> bool:
        """Return whether rankings prune to a target size, not to the number of heads of `auber`."""
        return bool(self.settings_of(task).get("size.keep"))

    def is_answered(self, block: Block) -> bool:
        """Return whether a block has texts without labels, and so no model to fine-tune first."""
        return self.tasks[block.task].is_answered

    def settings_of(self, task: str | None) -> dict[str, Value]:
        """Return what the study changes for a task, or for a task that it does not name."""
        return {**self.settings, **(self.tasks[task].settings if task in self.tasks else {})}

    def needs_origin(self, block: Block, run: StudyRun) -> bool:
        """Return whether a run trains fold models, which start from the study's model."""
        if run.method is None or self.is_answered(block):
            return False
        return outline_method(run.method).uses_fold_models(block.protocol)

    def load_task(self, name: str, seed: int = 0) -> TaskData:
        """Return the rows of a task; `seed` matters only to generated ones."""
        task = self.tasks[name]
        return (
            task.load(name, self.model)
            if task.is_own
            else load_task(name, data=self.data, seed=seed)
        )

    def change(self, **fields: Any) -> Study:
        """Return a copy with some fields changed, unchecked."""
        return self.model_copy(update=fields)

    def change_task(self, name: str, **fields: Any) -> Study:
        """Return a copy with some fields of one task changed, unchecked."""
        return self.change(tasks={**self.tasks, name: self.tasks[name].model_copy(update=fields)})

    def resolve(self) -> Study:
        """Return the study with absolute paths, for workers in other folders."""
        is_folder = self.model != GENERATED and Path(self.model).exists()
        study = self.change(
            model=str(Path(self.model).resolve()) if is_folder else self.model,
            data=self.data and self.data.resolve(),
        )
        for name, task in self.own.items():
            # A symbolic link keeps its name, whose suffix is the format of the file.
            paths = {key: getattr(task, key) for key in ("train", "dev", "texts")}
            places = {key: path and path.absolute() for key, path in paths.items()}
            study = study.change_task(name, **places)
        return study

    def to_toml(self) -> str:
        """Return the study as a file, without `keep_weights` and where model and data are."""
        tables = {name: task.to_table() for name, task in self.tasks.items()}
        has_tables = bool(self.own) or any(tables.values())
        head: dict[str, Any] = {"model": self.model_name, "weights": self.weights}
        head["tasks"] = None if has_tables else tuple(tables)
        keys = ("methods", "seeds", "protocols", "preset", "draws")
        lines = _toml_lines(head | {key: getattr(self, key) for key in keys})
        if self.settings:
            lines += ["", "[settings]", *_toml_lines(dict(sorted(self.settings.items())))]
        for name, table in tables.items() if has_tables else ():
            lines += ["", f"[tasks.{name}]", *_toml_lines(dict(sorted(table.items())))]
        return "\n".join(lines) + "\n"


def _toml_lines(values: Mapping[str, Any]) -> list[str]:
    """Return lines of TOML, which has texts, numbers, booleans and lists as JSON does."""
    # JSON's \uXXXX of a surrogate pair is not valid in TOML.
    return [
        f"{key} = {json.dumps(value, ensure_ascii=False, default=str)}"
        for key, value in values.items()
        if value is not None
    ]


def read_study(path: str | Path) -> Study:
    """Return the study in a TOML file; a `ConfigError` lists all of its problems."""
    tables = load_toml(path, "'auber study --help' shows a study")
    return make_study(tables, where=str(path))


def make_study(tables: Mapping[str, Any], where: str = "study") -> Study:
    """Return the study that TOML tables describe; a `ConfigError` lists all of their problems."""
    preset = tables.get("preset")
    known_preset = preset if isinstance(preset, str) and preset in PRESETS else "default"
    study, problems = validate(Study, {"protocols": [make_config(known_preset).protocol], **tables})
    if study is not None:
        problems = _find_conflicts(study)
    if study is None or problems:
        # The words of JSON in those of TOML.
        listed = "; ".join(problems).replace("a JSON object", "a table")
        raise ConfigError(f"{where}: {listed}")
    return study


def change_study(
    study: Study, *, model: str | None = None, seeds: str | None = None, data: Path | None = None
) -> Study:
    """Return the study with the values of the command line."""
    given: dict[str, Any] = {"model": model, "data": data}
    if seeds is not None:
        try:
            given["seeds"] = TypeAdapter(Seeds).validate_python(seeds.split(","))
        except ValidationError as error:
            raise ConfigError(
                f"--seeds must be different whole numbers such as 0,1,2, found '{seeds}'"
            ) from error
    study = study.change(**{key: value for key, value in given.items() if value is not None})
    problems = _find_conflicts(study)
    if problems:
        raise ConfigError(f"study: {'; '.join(problems)}")
    return study


def select_runs(study: Study, only: Sequence[str] = ()) -> list[PlacedRun]:
    """Return the runs that `only` names, such as `task=rte,seed=1`, and those that they need.

    A key given twice accepts both values; without filters, all runs are returned.
    """
    known: dict[str, Collection[str]] = {
        "task": study.tasks,
        "protocol": study.protocols,
        "seed": [str(seed) for seed in study.seeds],
        "method": study.methods,
    }
    wanted = parse_only(only, known)
    for key, values in wanted.items():
        for value in sorted(values.difference(known[key])):
            raise ConfigError(f"--only: {unknown_name(key, value, known[key])}")
    methods = wanted.pop("method", None)
    found: list[PlacedRun] = []
    for block in study.blocks():
        if any(str(getattr(block, key)) not in values for key, values in wanted.items()):
            continue
        runs = study.runs(block)
        names = {run.name for run in runs if methods is None or run.method in methods}
        for run in reversed(runs):  # what a run needs comes before it
            if run.name in names:
                names.update(run.needs)
        found += [(block, run) for run in runs if run.name in names]
    return found


def _find_conflicts(study: Study) -> list[str]:
    """Return what is wrong between the parts of a study, or else with the settings of its runs."""
    problems = list(_find_contradictions(study))
    for block, run in [] if problems else select_runs(study):
        try:
            study.config(block, run)
        except ConfigError as error:
            problems.append(str(error))
    return list(dict.fromkeys(problems))


def _find_contradictions(study: Study) -> Iterator[str]:
    name = study.model_name  # of a link or of '.', the name of the folder
    if not name.isprintable() or not 1 <= len(name) <= LONGEST_NAME:
        yield (
            f"the model's name must be 1 to {LONGEST_NAME} printable characters, "
            f"found {show_value(name)}; rename it or choose another"
        )
    if study.model == GENERATED and set(study.tasks) != {GENERATED}:
        yield (
            f"the model '{GENERATED}' reads only the task '{GENERATED}', found the tasks "
            f"{', '.join(study.tasks)}; name another model or that task"
        )
    if study.data is not None and len(study.own) == len(study.tasks):
        yield "data is for known tasks, found only your own rows; leave data out"
    for name in study.methods:
        method = outline_method(name)
        if (
            method.removes_heads
            and not method.decides_number
            and REFERENCE not in study.methods
            and not all(map(study.is_sized, study.tasks))
        ):
            yield (
                f"'{name}' removes as many heads as '{REFERENCE}', which is not among the methods; "
                f"add '{REFERENCE}', or give a size with size.keep under [settings]"
            )
            break
    tables = {"settings": study.settings}
    tables |= {f"tasks.{name}": task.settings for name, task in study.tasks.items()}
    for table, changed in tables.items():
        for key, remedy in _DECIDED.items():
            if key in changed:
                yield f"{table}: {key} is set by the study for each run; {remedy}"
