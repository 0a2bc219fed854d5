"""Every setting, declared once: type, default, range and meaning.

The dataclass defaults are the `paper` preset; `PRESETS` lists what the other presets change. Precedence, weakest first:
defaults, preset, the preset's settings for the task, config file, `--set`. A `Config` is frozen and always valid: all
problems of an input are reported together in one `ConfigError`. The command line's help and the table in the
documentation are made from these declarations.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import tomllib
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from auber.errors import ConfigError, unknown_name

Value = str | int | float | bool | None

ALL_LAYERS = "all"
LARGEST_NUMBER = 2**63 - 1  # of whole numbers: more fits neither a generator's seed nor a file's name
_DEEPEST_TABLE = 32  # far more than any setting has dots
_LONGEST_KEY = 1000


def show_value(value: object) -> str:
    """What was found, for a message: on one line and not endless, whatever it is."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write out numbers of many thousand digits
        return "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:77]}..."


def show_name(name: str) -> str:
    """A name that was found, for a message: as it is, unless it would not stay on its line."""
    return name if name.isprintable() and len(name) <= 80 else show_value(name)


@dataclass(frozen=True)
class Form:
    """What the text of a setting must look like."""

    words: str  # for people
    read: Callable[
        [str], str | None
    ]  # the text as it is kept, one for all ways to write the same; None: not of this form


def _read_layers(text: str) -> str | None:
    """`2,6,10` in ascending order, or `all`; no layer twice."""
    if text.strip() in ("", ALL_LAYERS):
        return ALL_LAYERS
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) <= 4 for word in words):
        return None
    layers = sorted(int(word) for word in words)
    return ",".join(map(str, layers)) if len(set(layers)) == len(layers) else None


def setting(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] | None = None,
    form: Form | None = None,
) -> Any:
    """Declare one setting; `low` and `high` are inclusive."""
    return field(default=default, metadata={"doc": doc, "low": low, "high": high, "choices": choices, "form": form})


@dataclass(frozen=True)
class FirstTuning:
    """The fine-tuning that makes the start of the search out of a pretrained encoder."""

    when: str = setting(
        "auto", "auto: only if the model has no trained classifier yet", choices=("auto", "always", "never")
    )
    epochs: int = setting(3, "passes over its rows", low=0)
    learning_rate: float = setting(2e-5, "peak rate, decayed linearly to 0", low=0)
    batch_size: int = setting(32, "rows a step", low=1)


@dataclass(frozen=True)
class LayerTuning:
    """The fine-tuning on mini-train after a layer has lost heads."""

    epochs: int = setting(3, "passes over mini-train; 0: none", low=0)
    learning_rate: float = setting(2e-6, "peak rate, decayed linearly to 0", low=0)
    batch_size: int = setting(32, "rows a step", low=1)


@dataclass(frozen=True)
class LastTuning:
    """The fine-tuning with early stopping after the last layer."""

    epochs: int = setting(6, "at most this many passes; 0: none", low=0)
    learning_rate: float = setting(2e-6, "peak rate, decayed linearly to 0", low=0)
    batch_size: int = setting(32, "rows a step", low=1)
    watch_fraction: float = setting(
        0.1, "share of train set apart for early stopping (protocol seen)", low=0.01, high=0.5
    )
    evaluations_per_epoch: int = setting(8, "looks at the watched rows in an epoch", low=1)
    patience: int = setting(20, "evaluations without a better one before it stops", low=1)
    watch: str = setting(
        "metric", "what early stopping compares; ties go to the lower loss", choices=("metric", "loss")
    )


@dataclass(frozen=True)
class Reward:
    """What the game pays, and on which rows."""

    fraction: float = setting(
        2 / 3,
        "share of train that is the reward set, the rest is mini-train; 1: both are all of train (protocol seen)",
        low=0.01,
        high=1,
    )
    max_rows: int = setting(0, "bound on the rows of the reward set, drawn by class; 0: no bound", low=0)
    scale: float = setting(100.0, "factor from the metric to the reward (100: points)", low=1e-6)
    stop: float = setting(0.0, "reward of stopping")
    shards: int = setting(1, "parts the reward set is dealt into, to be scored side by side", low=1)
    spread: str = setting(
        "devices",
        "where the parts are scored: a GPU (on a CPU a thread) of this process each, or a Ray worker each",
        choices=("devices", "ray"),
    )


@dataclass(frozen=True)
class Search:
    """Which layers are searched, in which order, and what the agent sees of one."""

    order: str = setting("forward", "first layer to last, or last to first", choices=("forward", "reverse"))
    layers: str = setting(
        ALL_LAYERS,
        "the layers a layer-wise method searches, the others are left alone; original+tuning, if no run prescribes its tunings, "
        "gets those of these layers; ranking methods choose among all layers",
        form=Form("all, or different layers such as 2,6,10", _read_layers),
    )
    matrix: str = setting("value", "projection whose norm per head is the state", choices=("value", "query", "key"))
    norm: str = setting("l1", "entrywise norm of that projection", choices=("l1", "l2"))

    def layers_of(self, num_layers: int) -> list[int]:
        """The layers to search of a model with so many, ascending."""
        chosen = (
            list(range(num_layers)) if self.layers == ALL_LAYERS else [int(word) for word in self.layers.split(",")]
        )
        missing = [str(layer) for layer in chosen if layer >= num_layers]
        if missing:
            raise ConfigError(
                f"search.layers must name layers of the model, which has {num_layers} (0 to {num_layers - 1}), "
                f"found {', '.join(missing)}; leave out what it does not have"
            )
        return chosen


@dataclass(frozen=True)
class Agent:
    """The deep Q-network that plays a layer."""

    episodes: int = setting(150, "games a layer", low=0)
    hidden_size: int = setting(512, "width of a hidden layer", low=1)
    hidden_layers: int = setting(3, "hidden layers, LeakyReLU between", low=0)
    scale_state: bool = setting(False, "the network's input is the state times the number of heads, 1 on average")
    optimizer: str = setting("sgd", "sgd uses agent.momentum", choices=("sgd", "adam"))
    learning_rate: float = setting(0.03, "rate of the optimiser", low=0)
    momentum: float = setting(0.9, "momentum of sgd", low=0, high=0.9999)
    gradient_clamp: float = setting(1.0, "each gradient entry is clamped to plus or minus this", low=1e-9)
    batch_size: int = setting(128, "transitions an update", low=1)
    learning_starts: int = setting(128, "transitions stored before the first update", low=1)
    updates_per_episode: int = setting(1, "updates after an episode", low=0)
    replay_size: int = setting(5000, "transitions kept, the oldest go first", low=1)
    target_every: int = setting(35, "episodes between copies to the target network", low=1)
    gamma: float = setting(1.0, "discount", low=0, high=1)
    epsilon_start: float = setting(1.0, "share of random actions at first", low=0, high=1)
    epsilon_end: float = setting(0.05, "share of random actions in the long run", low=0, high=1)
    epsilon_decay: float = setting(256.0, "actions in which the difference falls to 1/e", low=1e-9)
    double_q: bool = setting(False, "the policy network chooses the action the target network values")
    stop_value: float | None = setting(None, "fix the value of stopping at this; none: it is learned")
    choose: str = setting(
        "rollout", "the layer's plan: the greedy roll-out, or the best mask seen", choices=("rollout", "best")
    )


@dataclass(frozen=True)
class RandomPruning:
    """The method `random`."""

    draw: int = setting(0, "which of several independent draws of heads", low=0)


@dataclass(frozen=True)
class Voita:
    """The gates of the method `voita`."""

    epochs: int = setting(3, "passes over the rows for each penalty tried", low=1)
    learning_rate: float = setting(0.1, "rate of Adam on the gates' logarithms", low=1e-9)
    batch_size: int = setting(32, "rows a step", low=1)
    temperature: float = setting(2 / 3, "of the hard-concrete distribution; lower: nearer to 0 and 1", low=0.01)
    stretch: float = setting(0.1, "the distribution is stretched by this beyond 0 and 1, then cut there", low=1e-6)
    trials: int = setting(8, "penalties tried at most", low=1)


@dataclass(frozen=True)
class Config:
    """All settings of a run. Build one with `make_config`."""

    seed: int = setting(0, "decides every random draw", low=0)
    protocol: str = setting("seen", "whether the first tuning sees the reward set", choices=("seen", "heldout"))
    max_length: int = setting(128, "tokens a row is cut to", low=4)
    device: str = setting("auto", "auto: a GPU if there is one", choices=("auto", "cpu", "cuda", "mps"))
    precision: str = setting("auto", "auto: bfloat16 on a GPU, else float32", choices=("auto", "float32", "bfloat16"))
    threads: int = setting(0, "CPU threads of torch; 0: as many as torch finds", low=0)
    first: FirstTuning = field(default_factory=FirstTuning)
    reward: Reward = field(default_factory=Reward)
    search: Search = field(default_factory=Search)
    agent: Agent = field(default_factory=Agent)
    layer: LayerTuning = field(default_factory=LayerTuning)
    last: LastTuning = field(default_factory=LastTuning)
    random: RandomPruning = field(default_factory=RandomPruning)
    voita: Voita = field(default_factory=Voita)

    def replace(self, settings: Mapping[str, Any]) -> Config:
        """A copy with some settings changed, given by dotted key."""
        return _build({**self.flat(), **settings}, where="settings")

    def flat(self) -> dict[str, Value]:
        """Every setting by dotted key."""
        return {info.key: _get(self, info.key) for info in settings()}

    def to_toml(self) -> str:
        """The settings as TOML that `read_toml` takes back."""
        return _to_toml(self.flat())


@dataclass(frozen=True)
class Preset:
    """Named settings: what differs from the defaults, and what differs further for some tasks."""

    doc: str
    settings: Mapping[str, Value]
    per_task: Mapping[str, Mapping[str, Value]]


_RTE_FIRST: dict[str, Value] = {"first.epochs": 4, "first.learning_rate": 1e-5}

PRESETS: dict[str, Preset] = {
    "paper": Preset(
        "the paper's settings; the authors' code where the paper is silent; ours where both are",
        {},
        {"rte": _RTE_FIRST},
    ),
    "reference": Preset(
        "the settings of the authors' code",
        {"search.norm": "l2", "reward.fraction": 0.25, "agent.stop_value": 0.2},
        {"rte": {**_RTE_FIRST, "reward.fraction": 1.0}, "wnli": {"reward.fraction": 1.0}},
    ),
    "default": Preset(
        "the paper's with an agent that learns more from each reward: a smaller network that sees the state at unit scale, Adam, "
        "8 updates an episode, target copied every 2, exploration that narrows sooner but never below a tenth, and the best mask seen as the plan",
        {
            "agent.hidden_size": 128,
            "agent.scale_state": True,
            "agent.optimizer": "adam",
            "agent.learning_rate": 0.002,
            "agent.updates_per_episode": 8,
            "agent.target_every": 2,
            "agent.epsilon_end": 0.1,
            "agent.epsilon_decay": 96.0,
            "agent.choose": "best",
        },
        {"rte": _RTE_FIRST},
    ),
}


@dataclass(frozen=True)
class SettingInfo:
    """One declared setting, for help texts and tables."""

    key: str
    kind: type
    optional: bool
    default: Value
    doc: str
    low: float | None
    high: float | None
    choices: tuple[str, ...] | None
    form: Form | None

    @property
    def allowed(self) -> str:
        """What a value may be, in words."""
        if self.choices:
            return ", ".join(self.choices)
        if self.form:
            return self.form.words
        words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[self.kind]
        if self.low is not None and self.high is not None:
            words += f" from {self.low:g} to {self.high:g}"
        elif self.low is not None:
            words += f" from {self.low:g}"
        return words + (" or none" if self.optional else "")


@functools.cache
def settings() -> tuple[SettingInfo, ...]:
    """All settings in the order of their declaration."""
    return tuple(_walk(Config, ""))


def make_config(
    preset: str = "default",
    *,
    task: str | None = None,
    file: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Config:
    """The configuration of a preset, for a task, changed by a TOML file and then by single settings."""
    if preset not in PRESETS:
        raise ConfigError(unknown_name("preset", preset, PRESETS))
    chosen = PRESETS[preset]
    values: dict[str, Any] = {**chosen.settings, **chosen.per_task.get(task or "", {})}
    where = "settings"
    if file is not None:
        values.update(read_toml(file))
        where = str(file)
    values.update(settings or {})
    return _build(values, where)


def read_toml(path: str | Path) -> dict[str, Any]:
    """The settings of a TOML file by dotted key, not yet checked."""
    try:
        return flatten_tables(load_toml(path))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path}: cannot be read as TOML ({error}); expected lines such as 'agent.gamma = 0.9'"
        ) from error


def load_toml(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML file; `OSError`, `ValueError` or `RecursionError` where it is none."""
    text = Path(path).read_text(encoding="utf-8")
    # The time that the parser takes grows with the square of a dotted key's length: some hundred kilobytes would be an hour.
    if any(len(line.partition("=")[0]) > _LONGEST_KEY for line in text.split("\n") if "=" in line or "[" in line[:9]):
        raise ValueError(f"a key is longer than {_LONGEST_KEY} characters")
    return tomllib.loads(text)


def flatten_tables(tables: Mapping[str, Any], prefix: str = "", depth: int = 0) -> dict[str, Any]:
    """The values of nested tables by dotted key; `ValueError` where they are nested without reason."""
    if depth > _DEEPEST_TABLE:
        raise ValueError(f"tables are nested more than {_DEEPEST_TABLE} deep")
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, dict):
            flat.update(flatten_tables(value, f"{prefix}{key}.", depth + 1))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def parse_assignment(text: str) -> tuple[str, str]:
    """`key=value` of the command line."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set takes key=value such as agent.gamma=0.9, found '{text}'")
    return key.strip(), value.strip()


def _walk(cls: type, prefix: str) -> Iterator[SettingInfo]:
    hints = typing.get_type_hints(cls)
    for item in dataclasses.fields(cls):
        kind = hints[item.name]
        if dataclasses.is_dataclass(kind):
            yield from _walk(typing.cast("type", kind), f"{prefix}{item.name}.")
            continue
        optional = isinstance(kind, types.UnionType)
        if optional:
            (kind,) = [part for part in typing.get_args(kind) if part is not types.NoneType]
        default = typing.cast("Value", item.default)
        yield SettingInfo(f"{prefix}{item.name}", kind, optional, default, **item.metadata)


def _build(values: Mapping[str, Any], where: str) -> Config:
    known = {info.key: info for info in settings()}
    problems: list[str] = []
    accepted: dict[str, Value] = {}
    for key, value in values.items():
        if key not in known:
            problems.append(
                unknown_name("setting", show_name(key), known).split(" Known:")[0] + " 'auber settings' lists them all"
            )
            continue
        try:
            accepted[key] = _convert(known[key], value)
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError(f"{where}: " + "; ".join(problems))
    return typing.cast("Config", _assemble(Config, "", accepted))


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _assemble(cls: type, prefix: str, values: Mapping[str, Value]) -> Any:
    hints = _hints(cls)
    arguments: dict[str, Any] = {}
    for item in dataclasses.fields(cls):
        key = f"{prefix}{item.name}"
        if dataclasses.is_dataclass(hints[item.name]):
            arguments[item.name] = _assemble(hints[item.name], f"{key}.", values)
        elif key in values:
            arguments[item.name] = values[key]
    return cls(**arguments)


def _convert(info: SettingInfo, value: Any) -> Value:
    """The value in the setting's type; text is read the way the command line gives it."""
    if info.optional and (value is None or value == "none"):
        return None
    converted = _parse(info.kind, value)
    if info.form is not None and converted is not None:
        converted = info.form.read(converted)
    in_range = converted is not None and (
        (info.low is None or converted >= info.low)
        and (info.high is None or converted <= info.high)
        and (info.choices is None or converted in info.choices)
    )
    if not in_range:
        raise ConfigError(f"{info.key} must be {info.allowed}, found {show_value(value)}")
    if type(converted) is int and converted > LARGEST_NUMBER:
        raise ConfigError(f"{info.key} must be at most {LARGEST_NUMBER}, found {show_value(value)}")
    return typing.cast("Value", converted)


def _parse(kind: type, value: Any) -> Any:
    """The value as `kind`, or None where it is not one; NaN and infinities are not numbers here."""
    if isinstance(value, str) and kind is not str:
        if kind is bool:
            return {"true": True, "false": False}.get(value.lower())
        try:
            value = int(value) if kind is int else float(value)
        except ValueError:
            return None
    if kind is bool or kind is str:
        return value if isinstance(value, kind) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if kind is int:
        return value if isinstance(value, int) else None
    try:
        converted = float(value)
    except OverflowError:  # a whole number beyond all floats
        return None
    return converted if math.isfinite(converted) else None


def _get(config: Config, key: str) -> Value:
    value: Any = config
    for name in key.split("."):
        value = getattr(value, name)
    return typing.cast("Value", value)


def _to_toml(flat: Mapping[str, Value]) -> str:
    lines: list[str] = []
    table = ""
    for key, value in flat.items():
        head, _, name = key.rpartition(".")
        if head != table:
            table = head
            lines += ["", f"[{table}]"]
        lines.append(f"{name} = {_toml_value(value)}")
    return "\n".join(lines).lstrip("\n") + "\n"


def _toml_value(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return '"none"'
    return f'"{value}"' if isinstance(value, str) else repr(value)
