"""What a setting's value may be, and how one is read: from Python, from a file, or from the text of a command line."""

from __future__ import annotations

import math
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from auber.errors import ConfigError

Value = str | int | float | bool | None

LARGEST_NUMBER = (
    2**63 - 1
)  # of whole numbers: more fits neither a generator's seed nor a file's name


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
    # The text as it is kept, one for all ways to write the same; None where it is not of this form.
    read: Callable[[str], str | None]


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
        words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[
            self.kind
        ]
        if self.low is not None and self.high is not None:
            words += f" from {self.low:g} to {self.high:g}"
        elif self.low is not None:
            words += f" from {self.low:g}"
        return words + (" or none" if self.optional else "")


def convert(info: SettingInfo, value: Any) -> Value:
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
