"""A study: the file that names tasks, methods and seeds, and the runs that follow from it.

A block is one (task, protocol, seed). Its runs share one fine-tuned model, the run `start`, so a
block is what one process works on. `auber` comes next, because the ranking methods and the tuned
control are matched with it: they remove as many heads and have the same tunings.

    model = "bert-base-cased"       # hub name, folder, or "agreement": the generated default
    tasks = ["mrpc", "rte"]         # or a table [tasks.NAME] for each, see `StudyTask`
    methods = ["auber", "random", "original"]
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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from auber.config import (
    PRESETS,
    PROTOCOLS,
    Config,
    Value,
    flatten_tables,
    load_toml,
    make_config,
    settings,
    show_name,
    show_value,
)
from auber.data import TASKS, TaskData, load_task, make_task
from auber.data.user_rows import split_names
from auber.errors import AuberError, ConfigError, TaskError, suggest, unknown_name
from auber.search.registry import METHODS
from auber.system.filters import parse_only
from auber.system.records import Count, Name, Record, validate

EMBEDDED = "agreement"  # the generated model, and the one task that it can read
START = "start"  # the run that fine-tunes the model shared by a block
MATCHED = "auber"  # the run whose number of heads and tunings others take over

_LONGEST_NAME = 1000
_OWN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")
_REPORT = "report"  # the folder that `auber report` writes into a study's
# Settings that a study decides for each run: what to write instead.
_DECIDED = {
    "seed": "list it under seeds",
    "protocol": "list it under protocols",
    "random.draw": "set their number as draws",
    "first.when": "a study always fine-tunes first",
}


def _require_printable(path: Path) -> Path:
    if not str(path).isprintable():
        raise ValueError("must be a printable path")
    return path


def _split_columns(names: Any) -> Any:
    return split_names(names) if isinstance(names, str) else names and tuple(names)


def _require_distinct(items: Sequence[Any]) -> Any:
    if not items:
        raise ValueError("must name at least one")
    repeated = sorted({str(item) for item in items if list(items).count(item) > 1})
    if repeated:
        raise ValueError(f"must name each once; {', '.join(map(show_name, repeated))} is repeated")
    return items


def _require_known(kind: str, known: Collection[str]) -> Callable[[tuple[str, ...]], Any]:
    def check(names: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [unknown_name(kind, show_name(n), known) for n in names if n not in known]
        if unknown:
            raise ValueError(f"must be known. {'; '.join(unknown)}")
        return names

    return check


def _require_preset(name: str) -> str:
    if name not in PRESETS:
        raise ValueError(f"must be one of {', '.join(PRESETS)}")
    return name


Text = Annotated[Name, Field(min_length=1, max_length=_LONGEST_NAME)]
Place = Annotated[Path, AfterValidator(_require_printable)]
Columns = Annotated[tuple[Text, ...], BeforeValidator(_split_columns)]


class StudyTask(Record):
    """The table `[tasks.NAME]`: the files of your own rows, and settings of this task alone.

    The keys are the options of `auber prune`. The record of a study has the digest of the rows in
    place of the files, because where they are does not matter. All other keys are settings.
    """

    model_config = ConfigDict(extra="allow")

    train: Place | None = None
    dev: Place | None = None
    kind: Text | None = None
    text: Columns | None = None
    label: Text | None = None
    labels: Columns | None = None
    metric: Text | None = None
    rows: Text | None = None  # digest of all that a score depends on; None until the rows are read

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
            task = make_task(
                self.train,
                self.dev or self.train,
                kind=self.kind,
                text=self.text,
                label=self.label,
                labels=self.labels,
                metric=self.metric,
                name=name,
            )
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
        return (START,) * self.from_start + (MATCHED,) * self.is_matched


PlacedRun = tuple[Block, StudyRun]


def _check_tasks(tasks: dict[str, StudyTask]) -> dict[str, StudyTask]:
    problems = []
    for name, task in tasks.items():
        if not task.is_own:
            if name not in TASKS:
                problems.append(unknown_name("task", show_name(name), TASKS))
        elif name in TASKS:
            problems.append(f"{name} is a known task; give your own rows another name")
        elif name == _REPORT:
            problems.append(f"{name} is the folder of 'auber report'; choose another name")
        elif not _OWN_NAME.fullmatch(name):
            problems.append(
                f"'{show_name(name)}' is the name of a folder: 1 to 100 of a-z, A-Z, 0-9, _ and -, "
                "the first not -; choose another name"
            )
    if problems:
        raise ValueError(f"must be known or rows of your own. {'; '.join(problems)}")
    return tasks


class Study(Record):
    """What to compare: tasks x protocols x seeds, and the methods on each."""

    model: Text
    tasks: Annotated[
        dict[str, StudyTask], AfterValidator(_require_distinct), AfterValidator(_check_tasks)
    ]
    methods: Annotated[
        tuple[str, ...],
        AfterValidator(_require_distinct),
        AfterValidator(_require_known("method", METHODS)),
    ]
    seeds: Annotated[tuple[Count, ...], AfterValidator(_require_distinct)]
    protocols: Annotated[
        tuple[str, ...],
        AfterValidator(_require_distinct),
        AfterValidator(_require_known("protocol", PROTOCOLS)),
    ]
    preset: Annotated[str, AfterValidator(_require_preset)] = "default"
    draws: Annotated[int, Field(ge=1, le=1000)] = 1  # each is a run of every block
    settings: Annotated[dict[str, Any], AfterValidator(flatten_tables)] = Field(
        default_factory=dict
    )
    data: Place | None = None
    keep_weights: bool = True
    weights: Text | None = None  # digest of the encoder; None until its weights are read

    @property
    def own(self) -> dict[str, StudyTask]:
        """Return the tasks that are rows of your own."""
        return {name: task for name, task in self.tasks.items() if task.is_own}

    @property
    def model_name(self) -> str:
        """Return the model as it is recorded: of a folder its last part."""
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
        found = [StudyRun(START, None, from_start=False, is_matched=False)]
        for name in sorted(self.methods, key=lambda name: name != MATCHED):
            method = METHODS[name]
            # Under heldout, a control is fine-tuned on the reward rows too.
            from_start = method.removes_heads or block.protocol != "heldout"
            is_matched = not method.decides_number and method.tunes and MATCHED in self.methods
            if name == "random":
                found += [
                    StudyRun(f"random-{draw}", name, from_start, is_matched, draw)
                    for draw in range(self.draws)
                ]
            else:
                found.append(StudyRun(name, name, from_start, is_matched))
        return found

    def config(self, block: Block, run: StudyRun) -> Config:
        """Return the settings of a run."""
        own: dict[str, Value] = {"seed": block.seed, "protocol": block.protocol}
        own["first.when"] = "never" if run.from_start else "always"
        if run.draw:
            own["random.draw"] = run.draw
        values = {**self.settings_of(block.task), **own}
        return make_config(self.preset, task=block.task, settings=values)

    def settings_of(self, task: str | None) -> dict[str, Value]:
        """Return what the study changes for a task, or for a task that it does not name."""
        return {**self.settings, **(self.tasks[task].settings if task in self.tasks else {})}

    def needs_origin(self, block: Block, run: StudyRun) -> bool:
        """Return whether a run trains fold models, which start from the study's model."""
        return run.method is not None and METHODS[run.method].makes_scouts(block.protocol)

    def load_task(self, name: str, seed: int = 0) -> TaskData:
        """Return the rows of a task; `seed` matters only to generated ones."""
        task = self.tasks[name]
        return task.load(name) if task.is_own else load_task(name, data=self.data, seed=seed)

    def change(self, **fields: Any) -> Study:
        """Return a copy with some fields changed, unchecked."""
        return self.model_copy(update=fields)

    def change_task(self, name: str, **fields: Any) -> Study:
        """Return a copy with some fields of one task changed, unchecked."""
        return self.change(tasks={**self.tasks, name: self.tasks[name].model_copy(update=fields)})

    def resolve(self) -> Study:
        """Return the study with absolute paths, for workers in other folders."""
        is_folder = self.model != EMBEDDED and Path(self.model).exists()
        study = self.change(
            model=str(Path(self.model).resolve()) if is_folder else self.model,
            data=self.data and self.data.resolve(),
        )
        for name, task in self.own.items():
            # A symbolic link keeps its name, whose suffix is the format of the file.
            files = {key: getattr(task, key) for key in ("train", "dev")}
            study = study.change_task(name, **{k: v and v.absolute() for k, v in files.items()})
        return study

    def to_toml(self) -> str:
        """Return the study as a file, without `keep_weights` and where model and data are."""
        tables = {name: task.to_table() for name, task in self.tasks.items()}
        has_tables = bool(self.own) or any(tables.values())
        keys: dict[str, Any] = {"model": self.model_name}
        keys |= {"weights": self.weights} if self.weights else {}
        keys |= {} if has_tables else {"tasks": tuple(tables)}
        keys |= {key: getattr(self, key) for key in ("methods", "seeds", "protocols", "preset")}
        lines = _toml_lines({**keys, "draws": self.draws})
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
    ]


def read_study(path: str | Path) -> Study:
    """Return the study in a TOML file; a `ConfigError` lists all of its problems."""
    try:
        tables = load_toml(path)
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path}: no such file; correct the path, 'auber study --help' shows what a study is"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path}: cannot be read as a study ({error}); 'auber study --help' shows one"
        ) from error
    return make_study(tables, where=str(path))


def make_study(tables: Mapping[str, Any], where: str = "study") -> Study:
    """Return the study that TOML tables describe; a `ConfigError` lists all of their problems."""
    preset, tasks = tables.get("preset"), tables.get("tasks")
    known_preset = preset if isinstance(preset, str) and preset in PRESETS else "default"
    values = {"protocols": [make_config(known_preset).protocol], **tables}
    problems = []
    if "tasks" in tables and not isinstance(tasks, dict):
        problems = _find_list_problems(tasks)
        values["tasks"] = {EMBEDDED: {}} if problems else {name: {} for name in tasks or ()}
    study, others = validate(Study, values)
    problems += [problem.replace("a JSON object", "a table") for problem in others]
    if study is not None and not problems:
        problems = _find_conflicts(study)
    if study is None or problems:
        raise ConfigError(f"{where}: {'; '.join(problems)}")
    return study


def _find_list_problems(tasks: Any) -> list[str]:
    if not isinstance(tasks, list) or not all(isinstance(name, str) for name in tasks):
        return [
            f"'tasks' must be a list of names or a table for each task, found {show_value(tasks)}"
        ]
    try:
        _require_distinct(tasks)
    except ValueError as error:
        return [f"'tasks' {error}"]
    return []


def change_study(
    study: Study,
    *,
    model: str | None = None,
    seeds: str | None = None,
    data: Path | None = None,
) -> Study:
    """Return the study with the values of the command line."""
    if seeds is not None:
        study = study.change(seeds=_parse_seeds(seeds))
    if model is not None:
        study = study.change(model=model)
    if data is not None:
        study = study.change(data=data)
    problems = _find_conflicts(study)
    if problems:
        raise ConfigError(f"study: {'; '.join(problems)}")
    return study


def _parse_seeds(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    # No more than 18 digits fit into the largest seed.
    if not all(word.isascii() and word.isdigit() and len(word) <= 18 for word in words):
        raise ConfigError(f"--seeds must be whole numbers such as 0,1,2, found '{text}'")
    try:
        return tuple(_require_distinct([int(word) for word in words]))
    except ValueError as error:
        raise ConfigError(f"--seeds {error}, found '{text}'") from error


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
    """Return what is wrong between the parts of a study."""
    problems = []
    name = study.model_name  # of a link or of '.', the name of the folder
    if not name.isprintable() or not 1 <= len(name) <= _LONGEST_NAME:
        problems.append(
            f"the model's name must be 1 to {_LONGEST_NAME} printable characters, "
            f"found {show_value(name)}; rename it or choose another"
        )
    if study.model == EMBEDDED and set(study.tasks) != {EMBEDDED}:
        problems.append(
            f"the model '{EMBEDDED}' reads only the task '{EMBEDDED}', found the tasks "
            f"{', '.join(study.tasks)}; name another model or that task"
        )
    if study.data is not None and len(study.own) == len(study.tasks):
        problems.append("data is for known tasks, found only your own rows; leave data out")
    matched = [
        name
        for name in study.methods
        if not METHODS[name].decides_number and METHODS[name].removes_heads
    ]
    if matched and MATCHED not in study.methods:
        problems.append(
            f"'{matched[0]}' removes as many heads as '{MATCHED}', which is not among the "
            f"methods; add '{MATCHED}'"
        )
    tables = {"settings": study.settings}
    tables |= {f"tasks.{name}": task.settings for name, task in study.tasks.items()}
    problems += [
        f"{table}: {key} is set by the study for each run; {remedy}"
        for table, changed in tables.items()
        for key, remedy in _DECIDED.items()
        if key in changed
    ]
    return problems or _find_wrong_settings(study)


def _find_wrong_settings(study: Study) -> list[str]:
    problems: dict[str, None] = {}
    for block in study.blocks():
        for run in study.runs(block):
            try:
                study.config(block, run)
            except ConfigError as error:
                problems[str(error)] = None
    return list(problems)
