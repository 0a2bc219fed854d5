"""All settings: declarations in `sections`, presets in `presets`.

Precedence, weakest first: defaults, preset, the preset's settings for the task, for the protocol
and for texts without labels, config file, `--set`. A `Config` is frozen and always valid. All
problems of an input are reported together in one `ConfigError`. The command line's help and the
table in the documentation are generated from the declarations.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from auber.config.presets import PRESETS
from auber.config.sections import (
    PROTOCOLS,
    Agent,
    Config,
    FirstTuning,
    LastTuning,
    LayerTuning,
    Reward,
    Search,
    Size,
    Teaching,
    settings,
)
from auber.config.values import Value, build, flatten_tables, load_toml
from auber.errors import ConfigError, unknown_name

__all__ = [
    "PRESETS",
    "PROTOCOLS",
    "Agent",
    "Config",
    "FirstTuning",
    "LastTuning",
    "LayerTuning",
    "Reward",
    "Search",
    "Size",
    "Teaching",
    "Value",
    "flatten_tables",
    "load_toml",
    "make_config",
    "parse_assignment",
    "settings",
]


def make_config(
    preset: str = "default",
    *,
    task: str | None = None,
    file: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    otherwise: Mapping[str, Any] | None = None,
    without_labels: bool = False,
) -> Config:
    """Return the settings of a preset for a task, changed by a TOML file, then by `settings`.

    `otherwise` replaces values of the preset, but not what the file or `settings` give.
    `without_labels`: for texts as `auber.make_texts` returns them.
    """
    if settings is not None and not isinstance(settings, Mapping):
        raise ConfigError(
            f"settings: must be a mapping from key to value, found {type(settings).__name__}"
        )
    if not isinstance(preset, str):
        raise ConfigError(
            f"preset: must be a name, found {type(preset).__name__}; "
            "pass single settings as make_config(settings={...})"
        )
    if preset not in PRESETS:
        raise ConfigError(unknown_name("preset", preset, PRESETS))
    chosen, settings = PRESETS[preset], settings or {}
    in_file = {} if file is None else flatten_tables(load_toml(file))
    # Check the file by itself, so that its name is given for its own problems only.
    build(Config, {k: v for k, v in in_file.items() if k not in settings}, str(file))
    given = {**in_file, **settings}
    base = {"protocol": Config().protocol, **chosen.settings, **chosen.per_task.get(task or "", {})}
    protocol = str(given.get("protocol", base["protocol"]))
    base |= chosen.per_protocol.get(protocol, {})
    base |= chosen.without_labels if without_labels else {}
    values = {**base, **(otherwise or {}), **given}
    return build(Config, values, "settings").of_preset(preset)


def parse_assignment(text: str) -> tuple[str, str]:
    """Return key and value of `key=value` from the command line."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set takes key=value such as agent.gamma=0.9, found '{text}'")
    return key.strip(), value.strip()
