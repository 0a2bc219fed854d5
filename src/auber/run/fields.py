"""JSON that somebody else may have written, read field by field."""

from __future__ import annotations

import math
import sys
from typing import Any

from auber.config import LARGEST_NUMBER
from auber.errors import RunError

_LARGEST = 1e15  # of a score or of seconds; beyond it they mean nothing


def is_number(found: Any) -> bool:
    """A finite number, as a score or seconds can be."""
    return type(found) in (int, float) and -_LARGEST < found < _LARGEST


class Fields:
    """Typed access to JSON by dotted key; whatever is missing or of another type is named with its place."""

    def __init__(self, where: str, data: Any) -> None:
        self.where, self._data = where, data

    @property
    def remedy(self) -> str:
        """What to do about what is damaged."""
        return "make the run again"

    def get(self, key: str, kind: type, *, optional: bool = False) -> Any:
        """The value at a key, of this type; with `optional` also None."""
        value: Any = self._data
        for name in key.split("."):
            if not isinstance(value, dict) or name not in value:
                raise RunError(
                    f"{self.where}: lacks '{key}'; it is damaged or of another version, {self.remedy}"
                )
            value = value[name]
        return None if optional and value is None else self._checked(key, value, kind)

    def find(self, key: str, kind: type) -> Any:
        """The value at a key, of this type; None where there is none."""
        value: Any = self._data
        for name in key.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return None if value is None else self._checked(key, value, kind)

    def has(self, key: str) -> bool:
        """Whether something is at a key, be it null."""
        value: Any = self._data
        for name in key.split("."):
            if not isinstance(value, dict) or name not in value:
                return False
            value = value[name]
        return True

    def items(self, key: str, kind: type) -> tuple[Any, ...]:
        """The entries of a list at a key, all of this type; empty where there is no list."""
        return tuple(self._checked(key, entry, kind) for entry in self.find(key, list) or ())

    def numbers(self, key: str) -> dict[str, float]:
        """The numbers by name at a key, a total among them."""
        found = {
            name: self._checked(f"{key}.{name}", value, float)
            for name, value in self.get(key, dict).items()
        }
        self.get(f"{key}.total", float)
        return found

    def texts(self, key: str) -> dict[str, str]:
        """The texts by name at a key."""
        return {
            name: self._checked(f"{key}.{name}", value, str)
            for name, value in self.get(key, dict).items()
        }

    def _checked(self, key: str, value: Any, kind: type) -> Any:
        if kind is float and type(value) is int and abs(value) <= sys.float_info.max:
            value = float(value)
        good = type(value) is kind
        if isinstance(value, float):
            good = good and math.isfinite(value)
        elif type(value) is int:
            good = (
                good and abs(value) <= LARGEST_NUMBER
            )  # counts are divided, and become floats in tables
        elif isinstance(value, str):
            good = (
                good and value.isprintable()
            )  # names end up in tables, on terminals and in headings
        if not good:
            wanted = {
                float: "a finite number",
                int: "a whole number",
                str: "printable text",
                bool: "true or false",
            }
            raise RunError(
                f"{self.where}: '{key}' must be {wanted.get(kind, f'a {kind.__name__}')}, found {value!r:.40}; "
                f"it is damaged, {self.remedy}"
            )
        return value
