"""Every setting, declared once: type, default, range and meaning.

The declarations are in `sections`, the presets in `presets`. Precedence, weakest first: defaults, preset, the preset's
settings for the task and for the protocol, config file, `--set`. A `Config` is frozen and always valid: all problems of an input are reported
together in one `ConfigError`. The command line's help and the table in the documentation are made from the declarations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from auber.config.declarations import build
from auber.config.presets import PRESETS, Preset
from auber.config.sections import (
    PROTOCOLS,
    Agent,
    Config,
    FirstTuning,
    LastTuning,
    LayerTuning,
    RandomPruning,
    Reward,
    Search,
    Voita,
    settings,
)
from auber.config.toml import flatten_tables, load_toml, read_toml
from auber.config.values import LARGEST_NUMBER, SettingInfo, Value, show_name, show_value
from auber.errors import ConfigError, unknown_name

__all__ = [
    "LARGEST_NUMBER",
    "PRESETS",
    "PROTOCOLS",
    "Agent",
    "Config",
    "FirstTuning",
    "LastTuning",
    "LayerTuning",
    "Preset",
    "RandomPruning",
    "Reward",
    "Search",
    "SettingInfo",
    "Value",
    "Voita",
    "flatten_tables",
    "load_toml",
    "make_config",
    "parse_assignment",
    "read_toml",
    "require_read",
    "settings",
    "show_name",
    "show_value",
]


def make_config(
    preset: str = "default",
    *,
    task: str | None = None,
    file: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    otherwise: Mapping[str, Any] | None = None,
) -> Config:
    """The configuration of a preset, for a task, changed by a TOML file and then by single settings.

    `otherwise` holds where none of these says anything.
    """
    if settings is not None and not isinstance(settings, Mapping):
        raise ConfigError(
            f"settings: a mapping from key to value is needed, found {type(settings).__name__}"
        )
    if not isinstance(preset, str):
        raise ConfigError(
            f"preset: a name is needed, found {type(preset).__name__}; single settings go into make_config(settings={{...}})"
        )
    if preset not in PRESETS:
        raise ConfigError(unknown_name("preset", preset, PRESETS))
    chosen = PRESETS[preset]
    own = {} if file is None else read_toml(file)
    # By themselves, so that an error names the file only for what stands in it; what is given beside it holds instead.
    build(
        Config, {key: value for key, value in own.items() if key not in (settings or {})}, str(file)
    )
    given: dict[str, Any] = {**own, **(settings or {})}
    base = {**chosen.settings, **chosen.per_task.get(task or "", {})}
    protocol = given.get("protocol", base.get("protocol", Config.protocol))
    values = {**(otherwise or {}), **base, **chosen.per_protocol.get(str(protocol), {}), **given}
    return build(Config, values, "settings")


def require_read(
    settings: Iterable[str], read: Sequence[str], work: str, advice: Mapping[str, str] | None = None
) -> None:
    """Raise `ConfigError` for the first setting that a work does not read; `read` has their names, with `agent.*` for a section.

    `advice` says what to do instead of some; the others are to be left out.
    """
    for key in settings:
        if not any(
            key == name or (name.endswith(".*") and key.startswith(name[:-1])) for name in read
        ):
            remedy = (advice or {}).get(key, "leave it out")
            raise ConfigError(f"settings: {work} reads {', '.join(read)}, found {key}; {remedy}")


def parse_assignment(text: str) -> tuple[str, str]:
    """`key=value` of the command line."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set takes key=value such as agent.gamma=0.9, found '{text}'")
    return key.strip(), value.strip()
