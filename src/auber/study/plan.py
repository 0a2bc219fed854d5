"""A study: the file that names tasks, methods and seeds, and the runs it means.

A block is one (task, protocol, seed): its runs share one fine-tuned start, so a block is the unit of work that is handed
to a process or a machine. Within it `auber` comes first, because the ranking methods and the tuned control are matched
with it: as many heads, the same tuning. A study file holds only what differs from the defaults:

    model = "bert-base-cased"                 # hub name, folder, or "agreement": the small generated default
    tasks = ["mrpc", "rte"]                   # or a table [tasks.rte] for each, holding the settings of that task alone,
                                              # or [tasks.NAME] with the files of rows of your own (`auber.study.own`)
    methods = ["auber", "random", "original"]
    seeds = [0, 1, 2]
    preset = "paper"                          # optional, as is all below
    protocols = ["seen"]                      # without it, the preset's
    draws = 3                                 # of method random
    data = "glue"                             # a GLUE folder instead of the hub
    keep_weights = false                      # drop the model of a finished run; results stay
    weights = "9f86d0..."                     # the encoder's digest, as the folder's record has it: other weights are refused

    [settings]
    agent.episodes = 50
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from auber.config import (
    LARGEST_NUMBER,
    PRESETS,
    PROTOCOLS,
    Config,
    Value,
    flatten_tables,
    load_toml,
    make_config,
    show_name,
    show_value,
)
from auber.data import TASKS, TaskData, load_task
from auber.errors import ConfigError, unknown_name
from auber.search.registry import METHODS
from auber.study.own import KEYS as OWN_KEYS
from auber.study.own import OwnTask, read_own
from auber.system.filters import parse_only

EMBEDDED = "agreement"  # the model made on the spot, and the one task it can read
START = "start"
MATCHED = "auber"  # the run whose number of heads and tunings the others take over
MOST_DRAWS = 1000  # each is a run of every block

_KEYS = (
    "model",
    "tasks",
    "methods",
    "seeds",
    "protocols",
    "preset",
    "draws",
    "data",
    "keep_weights",
    "weights",
    "settings",
)
_LONGEST_NAME = 1000  # of a model or a folder; longer ones no system can open
_NEEDED = ("model", "tasks", "methods", "seeds")
# What a study decides for each run itself: (setting, what to write instead).
_OWN_SETTINGS = {
    "seed": "list it under seeds",
    "protocol": "list it under protocols",
    "random.draw": "say how many under draws",
    "first.when": "a study always tunes the start itself",
}


@dataclass(frozen=True)
class Block:
    """One (task, protocol, seed): the runs that share a start."""

    task: str
    protocol: str
    seed: int

    @property
    def path(self) -> Path:
        """Its folder below the study's."""
        return Path(self.task) / self.protocol / f"seed-{self.seed}"

    def __str__(self) -> str:
        return f"{self.task} {self.protocol} seed {self.seed}"


@dataclass(frozen=True)
class StudyRun:
    """One run of a block; its name is its folder's."""

    name: str
    method: str | None  # None: the first tuning alone
    from_start: bool  # whether it begins with the block's start; else with the model of the study
    is_matched: bool  # whether it takes over auber's number of heads and tunings
    draw: int = 0

    @property
    def needs(self) -> tuple[str, ...]:
        """The runs of the block that must be complete before it."""
        return (START,) * self.from_start + (MATCHED,) * self.is_matched


@dataclass(frozen=True)
class Selection:
    """The part of a study that a call is for."""

    blocks: tuple[Block, ...]
    methods: frozenset[str] | None = None  # None: all

    def runs(self, study: Study, block: Block) -> list[StudyRun]:
        """Its runs of a block in the order they are done, those that others of them need among them."""
        all_runs = study.runs(block)
        if self.methods is None:
            return all_runs
        wanted = {run.name for run in all_runs if run.method in self.methods}
        for run in reversed(
            all_runs
        ):  # a run comes after those it needs, so one pass finds them all
            if run.name in wanted:
                wanted.update(run.needs)
        return [run for run in all_runs if run.name in wanted]


@dataclass(frozen=True)
class Study:
    """What to compare: tasks x protocols x seeds, and the methods on each."""

    model: str
    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    protocols: tuple[str, ...]
    preset: str = "default"
    draws: int = 1
    settings: Mapping[str, Value] = field(default_factory=dict)
    task_settings: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    own: Mapping[str, OwnTask] = field(default_factory=dict)  # the tasks that are rows of your own
    data: Path | None = None
    keep_weights: bool = True
    weights: str | None = (
        None  # digest of the encoder without a classifier; None while nobody has read it
    )

    @property
    def model_name(self) -> str:
        """The model as it is recorded: of a folder its last part, for where it lies is no part of the study."""
        # Path.exists raises where a name is longer than the system's folders take
        return Path(self.model).resolve().name if os.path.exists(self.model) else self.model  # noqa: PTH110

    def blocks(self) -> list[Block]:
        """All blocks, seed by seed, so that a study cut short has some of everything."""
        return [
            Block(task, protocol, seed)
            for seed in self.seeds
            for protocol in self.protocols
            for task in self.tasks
        ]

    def runs(self, block: Block) -> list[StudyRun]:
        """The runs of a block in the order they are done."""
        found = [StudyRun(START, None, from_start=False, is_matched=False)]
        for name in sorted(self.methods, key=lambda name: name != MATCHED):
            method = METHODS[name]
            # Without pruning nobody would hold the reward rows back: under heldout a control has a first tuning of its own.
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
        """The settings of one run."""
        own: dict[str, Value] = {"seed": block.seed, "protocol": block.protocol}
        own["first.when"] = "never" if run.from_start else "always"
        if run.draw:
            own["random.draw"] = run.draw
        return make_config(
            self.preset, task=block.task, settings={**self.settings_of(block.task), **own}
        )

    def needs_origin(self, block: Block, run: StudyRun) -> bool:
        """Whether a run makes scouts, out of what the start was tuned from."""
        return run.method is not None and METHODS[run.method].uses_fold_models(block.protocol)

    def load_task(self, name: str, seed: int = 0) -> TaskData:
        """The rows of one of its tasks; `seed` matters to generated ones only."""
        return (
            self.own[name].load(name)
            if name in self.own
            else load_task(name, data=self.data, seed=seed)
        )

    def settings_of(self, task: str) -> dict[str, Value]:
        """What the study changes for a task."""
        return {**self.settings, **self.task_settings.get(task, {})}

    def to_toml(self) -> str:
        """The study as a file that `read_study` takes back, but for what is kept and where the data lies.

        Of rows of your own the digest stands in place of their files, once it is known.
        """
        lines = [f"model = {_toml(self.model_name)}"]
        lines += [f"weights = {_toml(self.weights)}"] if self.weights else []
        has_tables = bool(self.task_settings or self.own)
        if not has_tables:
            lines.append(f"tasks = {_toml(self.tasks)}")
        lines += [
            f"{name} = {_toml(getattr(self, name))}"
            for name in ("methods", "seeds", "protocols", "preset")
        ]
        lines.append(f"draws = {self.draws}")
        lines += _table("settings", self.settings) if self.settings else []
        for task in self.tasks if has_tables else ():
            own = self.own[task].to_table() if task in self.own else {}
            lines += _table(f"tasks.{task}", {**own, **self.task_settings.get(task, {})})
        return "\n".join(lines) + "\n"


def read_study(path: str | Path) -> Study:
    """The study in a TOML file; every problem of it is reported at once."""
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
    """The study a TOML document means; `where` is named in errors."""
    problems = [unknown_name("key", show_name(key), _KEYS) for key in tables if key not in _KEYS]
    problems += [f"{key} is missing" for key in _NEEDED if key not in tables]
    tasks = tables.get("tasks", [])
    own: dict[str, OwnTask] = {}
    task_settings: dict[str, dict[str, Any]] = {}
    for name, table in tasks.items() if isinstance(tasks, dict) else ():
        changed = table
        if isinstance(table, dict) and not table.keys().isdisjoint(OWN_KEYS):
            own[name] = read_own(name, table, problems)
            changed = {key: value for key, value in table.items() if key not in OWN_KEYS}
        task_settings[name] = _settings_in(changed, f"tasks.{show_name(name)}", problems)
    preset = _text(tables.get("preset", "default"), "preset", problems)
    own_protocol = make_config(preset if preset in PRESETS else "default").protocol
    values: dict[str, Any] = {
        "model": _text(tables["model"], "model", problems) if "model" in tables else "",
        "tasks": _names(
            list(tasks) if isinstance(tasks, dict) else tasks, "task", {*TASKS, *own}, problems
        )
        if "tasks" in tables
        else (),
        "methods": _names(tables["methods"], "method", METHODS, problems)
        if "methods" in tables
        else (),
        "seeds": _seeds(tables["seeds"], problems) if "seeds" in tables else (),
        "protocols": _names(
            tables.get("protocols", [own_protocol]), "protocol", PROTOCOLS, problems
        ),
        "preset": preset,
        "draws": tables.get("draws", 1),
        "settings": _settings_in(tables.get("settings", {}), "settings", problems),
        "task_settings": task_settings if any(task_settings.values()) else {},
        "own": own,
        "keep_weights": tables.get("keep_weights", True),
        "data": Path(_text(tables["data"], "data", problems)) if "data" in tables else None,
        "weights": _text(tables["weights"], "weights", problems) if "weights" in tables else None,
    }
    if type(values["draws"]) is not int or values["draws"] < 1:
        problems.append(f"draws must be a whole number from 1, found {show_value(values['draws'])}")
    elif values["draws"] > MOST_DRAWS:
        problems.append(f"draws must be at most {MOST_DRAWS}, found {show_value(values['draws'])}")
    if not isinstance(values["keep_weights"], bool):
        problems.append(
            f"keep_weights must be true or false, found {show_value(values['keep_weights'])}"
        )
    if problems:
        raise ConfigError(f"{where}: " + "; ".join(problems))
    study = Study(**values)
    _check_meaning(study, where)
    return study


def change_study(
    study: Study,
    *,
    model: str | None = None,
    seeds: str | None = None,
    data: Path | None = None,
    where: str = "--seeds",
) -> Study:
    """The study with what the command line says in place of the file's."""
    if seeds is not None:
        problems: list[str] = []
        words = seeds.split(",")
        chosen = _seeds(
            [int(word) if word.strip().isdecimal() else word for word in words], problems
        )
        if problems:
            raise ConfigError(f"{where}: " + "; ".join(problems))
        study = replace(study, seeds=chosen)
    if model is not None:
        study = replace(study, model=model)
    if data is not None:
        study = replace(study, data=data)
    _check_meaning(study, "study")
    return study


def select_runs(study: Study, only: Sequence[str] = ()) -> Selection:
    """What `only` names, such as `task=rte,seed=1` or `method=michel`; a key given twice means either."""
    known = {
        "task": study.tasks,
        "protocol": study.protocols,
        "seed": tuple(map(str, study.seeds)),
        "method": study.methods,
    }
    wanted = parse_only(only, known)
    for key, values in wanted.items():
        for value in sorted(values - set(known[key])):
            raise ConfigError(f"--only: {unknown_name(key, value, known[key])}")
    methods = wanted.pop("method", None)
    blocks = [
        block
        for block in study.blocks()
        if all(str(getattr(block, key)) in values for key, values in wanted.items())
    ]
    return Selection(tuple(blocks), None if methods is None else frozenset(methods))


def _check_meaning(study: Study, where: str) -> None:
    """What must hold between the parts of a study."""
    if study.preset not in PRESETS:
        raise ConfigError(f"{where}: {unknown_name('preset', study.preset, PRESETS)}")
    if not study.model_name.isprintable() or not 1 <= len(study.model_name) <= _LONGEST_NAME:
        # the folder's own name, where the model is given by a link or as '.', and bytes that are no text
        raise ConfigError(
            f"{where}: the model's name must be 1 to {_LONGEST_NAME} printable characters, found {show_value(study.model_name)}; "
            "rename it or choose another"
        )
    if study.model == EMBEDDED and study.tasks != (EMBEDDED,):
        raise ConfigError(
            f"{where}: the model '{EMBEDDED}' knows the words of the task '{EMBEDDED}' alone, found tasks "
            f"{', '.join(study.tasks)}; name another model or that task"
        )
    if study.data is not None and set(study.tasks) <= set(study.own):
        raise ConfigError(
            f"{where}: data is the folder of known tasks, found your own rows alone; leave data out"
        )
    unmatched = [
        name
        for name in study.methods
        if not METHODS[name].decides_number and METHODS[name].removes_heads
    ]
    if unmatched and MATCHED not in study.methods:
        raise ConfigError(
            f"{where}: '{unmatched[0]}' removes as many heads as {MATCHED} does, which is not among the methods; add '{MATCHED}'"
        )
    for table, settings in (
        ("settings", study.settings),
        *((f"tasks.{t}", s) for t, s in study.task_settings.items()),
    ):
        for key, remedy in _OWN_SETTINGS.items():
            if key in settings:
                raise ConfigError(
                    f"{where}: {table}: {key} is set by the study for each run; {remedy}"
                )
    for block in study.blocks():
        for run in study.runs(block):
            try:
                study.config(block, run)
            except ConfigError as error:
                raise ConfigError(f"{where}: {error}") from error


def _names(found: Any, kind: str, known: Iterable[str], problems: list[str]) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        problems.append(f"{kind}s must be a list of names, found {show_value(found)}")
        return ()
    problems += [unknown_name(kind, show_name(name), known) for name in found if name not in known]
    return tuple(_once(found, f"{kind}s", problems))


def _seeds(found: Any, problems: list[str]) -> tuple[int, ...]:
    if not isinstance(found, list) or not all(type(seed) is int and seed >= 0 for seed in found):
        problems.append(f"seeds must be a list of whole numbers from 0, found {show_value(found)}")
        return ()
    if max(found, default=0) > LARGEST_NUMBER:
        problems.append(f"seeds must be at most {LARGEST_NUMBER}, found {show_value(max(found))}")
        return ()
    return tuple(_once(found, "seeds", problems))


def _once(found: list[Any], name: str, problems: list[str]) -> list[Any]:
    if not found:
        problems.append(f"{name} must name at least one")
    repeated = sorted(item for item, times in Counter(found).items() if times > 1)
    if repeated:
        problems.append(
            f"{name}: each may be listed once, {', '.join(show_name(str(item)) for item in repeated)} is there more often; remove the repeats"
        )
    return found


def _text(found: Any, key: str, problems: list[str]) -> str:
    if not isinstance(found, str):
        problems.append(f"{key} must be text, found {show_value(found)}")
        return ""
    if not found.isprintable() or not 1 <= len(found) <= _LONGEST_NAME:
        problems.append(
            f"{key} must be 1 to {_LONGEST_NAME} printable characters, found {show_value(found)}"
        )
    return found


def _settings_in(found: Any, name: str, problems: list[str]) -> dict[str, Any]:
    """The settings of a table by dotted key."""
    if not isinstance(found, dict):
        problems.append(f"{name} must be a table of settings, found {show_value(found)}")
        return {}
    try:
        return flatten_tables(found)
    except ValueError as error:
        problems.append(f"{name}: {error}")
        return {}


def _table(name: str, values: Mapping[str, Any]) -> list[str]:
    return ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in sorted(values.items()))]


def _toml(value: Value | tuple[Any, ...]) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    # TOML has no surrogates: what lies beyond the first plane is written as it is
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
