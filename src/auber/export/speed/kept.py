"""Runs that are kept as lines of a results file (`auber report DIR --save FILE`), picked by task, method, seed and protocol."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from auber.errors import RunError

KEYS = ("task", "method", "seed", "protocol")


def is_results_file(content: Any) -> bool:
    """Whether a JSON file holds kept runs."""
    return (
        isinstance(content, dict)
        and content.get("kind") == "runs"
        and isinstance(content.get("runs"), list)
    )


def kept_results(
    path: Path, content: Mapping[str, Any], wanted: Mapping[str, set[str]]
) -> list[dict[str, Any]]:
    """The wanted lines as the results of their runs; those that removed nothing only where they are asked for by method."""
    lines = [
        line for line in content["runs"] if isinstance(line, dict) and line.get("kind") == "prune"
    ]
    if "method" not in wanted:
        lines = [line for line in lines if line.get("removed")]
    found = [
        line
        for line in lines
        if all(str(line.get(key)) in values for key, values in wanted.items())
    ]
    if not lines:
        raise RunError(
            f"{path}: holds no run that removed heads; give one that does, or name its runs with --only method=..."
        )
    if not found:
        there = "; ".join(
            f"{key}: {', '.join(sorted({str(line.get(key)) for line in lines}))}" for key in KEYS
        )
        raise RunError(f"{path}: none of its runs is wanted; it has {there}")
    return [
        {**line, "heads": {"layers": line.get("layers"), "per_layer": line.get("heads")}}
        for line in found
    ]
