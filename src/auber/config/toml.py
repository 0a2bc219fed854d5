"""Settings in TOML: read with care, whatever the file holds, and written so that they are read back."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from auber.config.values import Value
from auber.errors import ConfigError

_DEEPEST_TABLE = 32  # far more than any setting has dots
_LONGEST_KEY = 1000


def read_toml(path: str | Path) -> dict[str, Any]:
    """The settings of a TOML file by dotted key, not yet checked."""
    try:
        return flatten_tables(load_toml(path))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; correct the path") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path}: cannot be read as TOML ({error}); expected lines such as 'agent.gamma = 0.9'"
        ) from error


def load_toml(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML file; `OSError`, `ValueError` or `RecursionError` where it is none."""
    text = Path(path).read_text(
        encoding="utf-8-sig"
    )  # some editors put a mark before the first letter
    # The time that the parser takes grows with the square of a dotted key's length: some hundred kilobytes would be an hour.
    if any(
        len(line.partition("=")[0]) > _LONGEST_KEY
        for line in text.split("\n")
        if "=" in line or "[" in line[:9]
    ):
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


def format_toml(flat: Mapping[str, Value]) -> str:
    """Settings by dotted key as TOML that `read_toml` takes back."""
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
