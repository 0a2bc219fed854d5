"""Filters for many runs: `--only task=rte,seed=1`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from auber.errors import ConfigError, unknown_name


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
