"""Tables as data: columns that know what kind of value they hold, and sections that are never mixed.

A table says nothing of how it is drawn. A renderer is a function from a table to text: it meets the values here, by the
kind of their column, and `plain` gives the words for one where the format has no better way.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

Value = str | int | float | tuple[float, float | None] | None


class Detail(IntEnum):
    """Where a column is wanted: everywhere, where a page has room for it, or in data files only."""

    BRIEF = 0
    PAGE = 1
    DATA = 2


@dataclass(frozen=True)
class Column:
    """A title and the kind of value below it.

    `sentence` is text that wants to wrap; `number` holds one number; `spread` a mean and a deviation (None for a single run); `range` its two ends. None is a value that
    is not there.
    """

    title: str
    kind: Literal["text", "sentence", "number", "spread", "range"] = "text"
    decimals: int = 0
    signed: bool = False
    detail: Detail = Detail.BRIEF

    @property
    def is_text(self) -> bool:
        """Whether it holds words."""
        return self.kind in ("text", "sentence")


@dataclass(frozen=True)
class TableSection:
    """The rows of one model under one protocol (of none where it does not matter), and what must be said with them."""

    model: str | None
    protocol: str | None
    rows: tuple[tuple[Value, ...], ...]
    notes: tuple[str, ...] = ()
    label: str | None = None  # that it is not all that was asked for

    @property
    def title(self) -> str | None:
        """Model and protocol in words."""
        if self.model is None:
            return None
        return f"{self.model}, protocol {self.protocol}" + (
            f" ({self.label})" if self.label else ""
        )


@dataclass(frozen=True)
class Table:
    """One table. `name` is its file's; the notes are those of all sections."""

    name: str
    title: str
    columns: tuple[Column, ...]
    sections: tuple[TableSection, ...]
    notes: tuple[str, ...] = ()
    empty: str = "No runs."  # what stands in place of no section


def plain(column: Column, value: Value) -> str:
    """A value in words; empty where there is none."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, tuple):
        first, second = value
        start = _number(column, first)
        if second is None:
            return start
        if column.kind == "spread":
            return f"{start} ± {second:.{column.decimals}f}"
        end = _number(column, second)
        return start if start == end else f"{start} to {end}"
    return _number(column, value)


def _number(column: Column, value: float) -> str:
    rounded = round(value, column.decimals) + 0.0  # no minus before a zero
    sign = "+" if column.signed and rounded > 0 else ""
    return f"{sign}{rounded:.{column.decimals}f}"
