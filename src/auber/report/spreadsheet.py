"""A table as CSV: every column, one value a cell, for spreadsheets and data frames.

Numbers are rounded to six digits after the point, so that the last bits of an addition do not show. Text that a spreadsheet would take for a
formula gets an apostrophe before it.
"""

from __future__ import annotations

import csv
import io

from auber.report.columns import Column, Table, Value

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def render_csv(table: Table) -> str:
    """The rows of all sections, with their model and protocol before them."""
    apart = any(section.title is not None for section in table.sections)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    titles = [title for column in table.columns for title in _titles(column)]
    writer.writerow((["model", "protocol"] if apart else []) + titles)
    for section in table.sections:
        place = [_text(section.model), _text(section.protocol)] if apart else []
        for row in section.rows:
            cells = [
                cell
                for column, value in zip(table.columns, row, strict=True)
                for cell in _cells(column, value)
            ]
            writer.writerow(place + cells)
    return text.getvalue()


def _titles(column: Column) -> list[str]:
    match column.kind:
        case "spread":
            return [column.title, f"{column.title} deviation"]
        case "range":
            return [f"{column.title} low", f"{column.title} high"]
        case _:
            return [column.title]


def _cells(column: Column, value: Value) -> list[str]:
    if column.is_text:
        return [_text(value)]
    if value is None:
        return [""] * len(_titles(column))
    return [_number(part) for part in (value if isinstance(value, tuple) else (value,))]


def _text(value: Value) -> str:
    words = "" if value is None else str(value)
    words = f"'{words}" if words.startswith(_FORMULA) else words
    return words.replace(
        "\r", " "
    )  # csv puts no quotes around it alone, and what follows would be a row of its own


def _number(value: Value) -> str:
    if value is None:
        return ""
    assert isinstance(value, (int, float)), f"a column of numbers holds {value!r}"
    return (
        repr(value)
        if isinstance(value, int)
        else f"{round(value, 6) + 0.0:.6f}".rstrip("0").rstrip(".")
    )
