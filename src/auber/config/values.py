"""Convert, check and list the settings of a pydantic model whose fields are settings or sections.

The key of a setting is its path through the sections, with dots: `agent.gamma`. Values come from
Python, from a TOML file, or as text from the command line.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ValidationError
from pydantic.fields import FieldInfo

from auber.errors import ConfigError, show_name, show_value, suggest
from auber.system.records import LARGEST_NUMBER

Value = str | int | float | bool | None
M = TypeVar("M", bound=BaseModel)


def _require_storable(value: int) -> int:
    if value > LARGEST_NUMBER:
        raise ValueError(f"must be at most {LARGEST_NUMBER}")
    return value


Int = Annotated[int, AfterValidator(_require_storable)]

_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


@dataclass(frozen=True)
class SettingInfo:
    """One declared setting, for help texts and tables; `low` and `high` are inclusive."""

    key: str
    kind: type
    optional: bool
    default: Value
    doc: str
    low: float | None
    high: float | None
    choices: tuple[str, ...] | None
    form: str | None  # the allowed texts, in words

    @property
    def allowed(self) -> str:
        """Return the allowed values in words."""
        if self.choices:
            return ", ".join(self.choices)
        words = self.form or _KINDS[self.kind]
        if self.low is not None:
            words += f" from {self.low:g}"
        if self.high is not None:
            words += f" to {self.high:g}"
        return words + (" or none" if self.optional else "")


@functools.cache
def declared(cls: type[BaseModel]) -> tuple[SettingInfo, ...]:
    """Return all settings of a model in the order of their declaration."""
    return tuple(_walk(cls, ""))


def _walk(cls: type[BaseModel], prefix: str) -> Iterator[SettingInfo]:
    for name, field in cls.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _walk(field.annotation, f"{prefix}{name}.")
        else:
            yield _make_info(f"{prefix}{name}", field)


def _make_info(key: str, field: FieldInfo) -> SettingInfo:
    kind: Any = field.annotation
    optional = typing.get_origin(kind) in (typing.Union, types.UnionType)
    if optional:
        (kind,) = [part for part in typing.get_args(kind) if part is not types.NoneType]
    choices = typing.get_args(kind) if typing.get_origin(kind) is Literal else None
    bounds = {
        name: getattr(item, name)
        for item in field.metadata
        for name in ("ge", "le")
        if hasattr(item, name)
    }
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    return SettingInfo(
        key=key,
        kind=str if choices else kind,
        optional=optional,
        default=field.default,
        doc=field.description or "",
        low=bounds.get("ge"),
        high=bounds.get("le"),
        choices=choices,
        form=typing.cast("str | None", extra.get("form")),
    )


def flatten(model: BaseModel) -> dict[str, Value]:
    """Return the value of every setting by dotted key."""
    get: Any = functools.partial(functools.reduce, getattr)
    return {info.key: get(info.key.split("."), model) for info in declared(type(model))}


def build(cls: type[M], values: Mapping[str, Any], where: str) -> M:
    """Return the model with these values by dotted key.

    Raise one `ConfigError` that starts with `where` and lists all problems.
    """
    known = {info.key: info for info in declared(cls)}
    problems = {key: _describe_unknown(key, known) for key in values if key not in known}
    tables: dict[str, Any] = {}
    for key in known.keys() & values.keys():
        *sections, name = key.split(".")
        table = functools.reduce(lambda outer, part: outer.setdefault(part, {}), sections, tables)
        table[name] = _parse_text(known[key], values[key])
    try:
        model = cls.model_validate(tables)
    except ValidationError as error:
        for found in error.errors(include_url=False):
            key = ".".join(map(str, found["loc"]))
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
    name = show_name(key)
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
