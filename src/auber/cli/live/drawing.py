"""What drawings on a terminal have in common: the characters, bars and curves.

Every mark differs in shape as well as in colour, and has an ASCII form for terminals that know no more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.text import Text

STATE_STYLES = {
    "running": "green",
    "complete": "green",
    "elsewhere": "yellow",
    "waiting": "yellow",
    "stopped": "red",
    "failed": "red",
    "skipped": "yellow",
    "missing": "dim",
}


@dataclass(frozen=True)
class Marks:
    """The characters to draw with."""

    done: str
    present: str
    open: str
    kept: str
    removed: str
    searching: str
    full: str
    empty: str
    heights: str
    failed: str
    skipped: str


UNICODE = Marks("✓", "▶", "·", "■", "□", "▒", "━", "─", "▁▂▃▄▅▆▇█", "✗", "○")
ASCII = Marks("+", ">", ".", "#", "-", "?", "=", "-", "_.-~=*#", "x", "~")


@dataclass(frozen=True)
class Sheet:
    """Where to draw: columns, lines (None: as many as it takes) and characters."""

    width: int
    height: int | None
    marks: Marks = UNICODE


def bar(share: float, width: int, marks: Marks) -> str:
    """A bar filled to a share."""
    filled = round(min(1.0, max(0.0, share)) * width)
    return marks.full * filled + marks.empty * (width - filled)


def sparkline(values: Sequence[float], width: int, heights: str) -> str:
    """A curve of at most so many characters; where there are more values each stands for the mean of its share."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    count = min(width, len(finite))
    means = []
    for column in range(count):
        share = finite[column * len(finite) // count : (column + 1) * len(finite) // count]
        means.append(sum(share) / len(share))
    low, high = min(means), max(means)
    if low == high:
        return heights[len(heights) // 2] * count
    top = len(heights) - 1
    return "".join(heights[round((mean - low) / (high - low) * top)] for mean in means)


def cut(lines: Iterable[Text], sheet: Sheet) -> list[Text]:
    """The lines, none wider or more of them than the sheet."""
    kept = list(lines)[: sheet.height]
    for line in kept:
        line.truncate(sheet.width)
    return kept


def fold(lines: list[Text], most: int) -> list[Text]:
    """The first of many lines, and how many more there are."""
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], Text(f"... {len(lines) - most + 1} more", "dim")]
