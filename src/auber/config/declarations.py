"""How settings are declared: dataclasses within a dataclass, whose fields say what they mean and what they may be.

A setting's dotted key is its path through them. Nothing here knows which settings there are.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from auber.config.values import Form, SettingInfo, Value, convert, show_name
from auber.errors import ConfigError, unknown_name

Settings = TypeVar("Settings")


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
    return dataclasses.field(
        default=default,
        metadata={"doc": doc, "low": low, "high": high, "choices": choices, "form": form},
    )


@functools.cache
def declared(cls: type) -> tuple[SettingInfo, ...]:
    """All settings of a dataclass in the order of their declaration."""
    return tuple(_walk(cls, ""))


def flatten(settings: Any) -> dict[str, Value]:
    """The value of every setting of a dataclass by dotted key."""
    declaration: type = type(settings)
    return {info.key: _get(settings, info.key) for info in declared(declaration)}


def build(cls: type[Settings], values: Mapping[str, Any], where: str) -> Settings:
    """A dataclass of settings from values by dotted key; all problems together in one `ConfigError` that names `where`."""
    declaration: type = cls
    known = {info.key: info for info in declared(declaration)}
    problems: list[str] = []
    accepted: dict[str, Value] = {}
    for key, value in values.items():
        if key not in known:
            section = [name for name in known if name.startswith(f"{key}.")]
            problems.append(
                f"'{show_name(key)}' is a group of settings, not one; name one of it, such as {section[0]}"
                if section
                else unknown_name("setting", show_name(key), known).split(" Known:")[0]
                + " 'auber settings' lists them all"
            )
            continue
        try:
            accepted[key] = convert(known[key], value)
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError(f"{where}: " + "; ".join(problems))
    return typing.cast("Settings", _assemble(declaration, "", accepted))


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _walk(cls: type, prefix: str) -> Iterator[SettingInfo]:
    for item in dataclasses.fields(cls):
        kind = _hints(cls)[item.name]
        if dataclasses.is_dataclass(kind):
            yield from _walk(typing.cast("type", kind), f"{prefix}{item.name}.")
            continue
        optional = isinstance(kind, types.UnionType)
        if optional:
            (kind,) = [part for part in typing.get_args(kind) if part is not types.NoneType]
        default = typing.cast("Value", item.default)
        yield SettingInfo(f"{prefix}{item.name}", kind, optional, default, **item.metadata)


def _assemble(cls: type, prefix: str, values: Mapping[str, Value]) -> Any:
    arguments: dict[str, Any] = {}
    for item in dataclasses.fields(cls):
        key, kind = f"{prefix}{item.name}", _hints(cls)[item.name]
        if dataclasses.is_dataclass(kind):
            arguments[item.name] = _assemble(typing.cast("type", kind), f"{key}.", values)
        elif key in values:
            arguments[item.name] = values[key]
    return cls(**arguments)


def _get(settings: Any, key: str) -> Value:
    found = settings
    for name in key.split("."):
        found = getattr(found, name)
    return typing.cast("Value", found)
