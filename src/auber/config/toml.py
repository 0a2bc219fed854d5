"""Read and write settings as TOML.

tomli-w is not used: a search writes this file, and the core has no dependency on it.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from auber.errors import ConfigError

_DEEPEST_TABLE = 32  # far more than the dots of any key
_LONGEST_KEY = 1000


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the settings of a TOML file by dotted key, not yet checked."""
    try:
        return flatten_tables(load_toml(path))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; correct the path") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path}: cannot be read as TOML ({error}); expected lines such as 'agent.gamma = 0.9'"
        ) from error


def load_toml(path: str | Path) -> dict[str, Any]:
    """Return the tables of a TOML file.

    Raise `OSError`, `ValueError` or `RecursionError` if it cannot be read.
    """
    text = Path(path).read_text(encoding="utf-8-sig")  # some editors write a byte order mark
    # The parser takes quadratic time in the length of a dotted key: an hour for 300 kB.
    for line in text.split("\n"):
        is_key = "=" in line or "[" in line[:9]
        if is_key and len(line.partition("=")[0]) > _LONGEST_KEY:
            raise ValueError(f"a key is longer than {_LONGEST_KEY} characters")
    return tomllib.loads(text)


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


def format_toml(flat: Mapping[str, str | int | float | bool | None]) -> str:
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
