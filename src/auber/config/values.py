"""Convert, check and list the settings of a pydantic model whose fields are settings or sections.

The key of a setting is its path through the sections, with dots: `agent.gamma`. Values come from
Python, from a TOML file, or as text from the command line. tomli-w is not used: a search writes
its settings as TOML, and the core has no dependency on it.
"""

from __future__ import annotations

import functools
import json
import tomllib
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from auber.errors import ConfigError, show_name, show_value, suggest, unknown_name
from auber.system.records import LARGEST_NUMBER

Value = str | int | float | bool | None
M = TypeVar("M", bound=BaseModel)

_DEEPEST_TABLE = 32  # far more than the dots of any key
_LONGEST_KEY = 1000


def _require_storable(value: int) -> int:
    if value > LARGEST_NUMBER:
        raise ValueError(f"must be at most {LARGEST_NUMBER}")
    return value


Int = Annotated[int, AfterValidator(_require_storable)]

_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def setting(
    default: Value,
    description: str,
    *,
    ge: float | None = None,
    le: float | None = None,
    form: str | None = None,
) -> Any:
    """Declare a setting; `form` describes the allowed texts."""
    extra: Any = {"form": form}
    return Field(default, description=description, ge=ge, le=le, json_schema_extra=extra)


@dataclass(frozen=True)
class SettingInfo:
    """One declared setting, for help texts and tables."""

    key: str
    kind: type
    optional: bool
    doc: str
    choices: tuple[str, ...] | None
    allowed: str  # the allowed values, in words


@functools.cache
def declared(cls: type[BaseModel]) -> tuple[SettingInfo, ...]:
    """Return all settings of a model in the order of their declaration."""
    return tuple(_walk(cls, ""))


def _walk(cls: type[BaseModel], prefix: str) -> Iterator[SettingInfo]:
    for name, field in cls.model_fields.items():
        kind: Any = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _walk(kind, f"{prefix}{name}.")
            continue
        parts: tuple[Any, ...] = (kind,)
        if typing.get_origin(kind) in (typing.Union, types.UnionType):
            parts = typing.get_args(kind)
            kind = next(part for part in parts if part in _KINDS)
        choices = typing.get_args(kind) if typing.get_origin(kind) is Literal else None
        kind, optional = str if choices else kind, types.NoneType in parts
        extra: Any = field.json_schema_extra
        allowed = ", ".join(choices or ()) or extra["form"] or _KINDS[kind]
        for rule in field.metadata:
            allowed += f" from {rule.ge:g}" if hasattr(rule, "ge") else ""
            allowed += f" to {rule.le:g}" if hasattr(rule, "le") else ""
        allowed += " or none" if optional else ""
        doc = field.description or ""
        yield SettingInfo(f"{prefix}{name}", kind, optional, doc, choices, allowed)


def build(cls: type[M], values: Mapping[str, Any], where: str) -> M:
    """Return the model with these values by dotted key.

    Raise one `ConfigError` that starts with `where` and lists all problems.
    """
    known = {info.key: info for info in declared(cls)}
    problems = {key: _describe_unknown(key, known) for key in values if key not in known}
    tables: dict[str, Any] = {}
    for key in known.keys() & values.keys():
        section, _, name = key.rpartition(".")
        table = tables.setdefault(section, {}) if section else tables
        table[name] = _parse_text(known[key], values[key])
    try:
        model = cls.model_validate(tables)
    except ValidationError as error:
        for found in error.errors(include_url=False):
            # Each alternative of a union is a part of its own behind the key.
            key = ".".join(part for part in map(str, found["loc"]) if part not in ("float", "str"))
            rule = f"must be {known[key].allowed}"
            if found["type"] == "value_error":
                rule = str(found["ctx"]["error"])
            problems[key] = f"{key} {rule}, found {show_value(values[key])}"
    if problems:
        listed = [problems[key] for key in values if key in problems]
        raise ConfigError(f"{where}: " + "; ".join(listed))
    return model


def _describe_unknown(key: str, known: Mapping[str, SettingInfo]) -> str:
    section = [name for name in known if name.startswith(f"{key}.")]
    if section:
        return (
            f"'{key}' is a group of settings, not a setting; name one of them, such as {section[0]}"
        )
    name = show_name(str(key))
    return f"Unknown setting '{name}'.{suggest(name, known)} 'auber list settings' lists all"


def _parse_text(info: SettingInfo, value: Any) -> Any:
    """Return a text as a value of the setting's type; leave what cannot be converted as it is."""
    if info.optional and value == "none":
        return None
    if not isinstance(value, str) or info.kind is str:
        return value
    if info.kind is bool:
        return {"true": True, "false": False}.get(value.lower(), value)
    try:
        return info.kind(value)
    except ValueError:
        return value


def load_toml(
    path: str | Path, expected: str = "expected lines such as 'agent.gamma = 0.9'"
) -> dict[str, Any]:
    """Return the tables of a TOML file; `expected` tells the user what the file should hold."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")  # some editors write a byte order mark
        # The parser takes quadratic time in the length of a dotted key: an hour for 300 kB.
        for line in text.split("\n"):
            is_key = "=" in line or "[" in line[:9]
            if is_key and len(line.partition("=")[0]) > _LONGEST_KEY:
                raise ValueError(f"a key is longer than {_LONGEST_KEY} characters")
        tables = tomllib.loads(text)
        flatten_tables(tables)  # which refuses deep ones
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; correct the path") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read as TOML ({error}); {expected}") from error
    return tables


def flatten_tables(tables: Mapping[str, Any], prefix: str = "", depth: int = 0) -> dict[str, Any]:
    """Return the values of nested tables by dotted key."""
    if depth > _DEEPEST_TABLE:
        raise ValueError(f"tables are nested more than {_DEEPEST_TABLE} deep")
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, dict):
            flat.update(flatten_tables(value, f"{prefix}{key}.", depth + 1))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def format_toml(flat: Mapping[str, Value]) -> str:
    """Return settings by dotted key as TOML; the settings of a section must be consecutive."""
    lines: list[str] = []
    section = ""
    for key, value in flat.items():
        head, _, name = key.rpartition(".")
        if head != section:
            section = head
            lines += ["", f"[{section}]"]
        # TOML writes numbers, booleans and short texts as JSON does, but has no null.
        lines.append(f"{name} = {json.dumps('none' if value is None else value)}")
    return "\n".join(lines).lstrip("\n") + "\n"


def parse_only(texts: Sequence[str], keys: Collection[str]) -> dict[str, set[str]]:
    """Return the accepted values of each key; a key given twice accepts both values."""
    wanted: dict[str, set[str]] = {}
    for part in (part for text in texts for part in text.split(",")):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not value:
            raise ConfigError(f"--only takes key=value such as task=rte,seed=1, found '{part}'")
        if key not in keys:
            raise ConfigError(f"--only: {unknown_name('key', key, keys)}")
        wanted.setdefault(key, set()).add(value)
    return wanted
