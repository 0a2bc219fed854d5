"""A table as a Markdown page."""

from __future__ import annotations

import re

from auber.report.columns import Column, Detail, Table, Value, plain


def render_markdown(table: Table, level: int = 1) -> str:
    """The page, or the part of one that begins with a heading of this level; a heading for each section, the notes below."""
    columns = [place for place, column in enumerate(table.columns) if column.detail <= Detail.PAGE]
    titles = [table.columns[place] for place in columns]
    lines = [f"{'#' * level} {escape(table.title)}", ""]
    if not any(section.rows for section in table.sections):
        lines += [escape(table.empty), ""]
    for section in table.sections:
        if section.title is not None:
            lines += [f"{'#' * (level + 1)} {escape(section.title)}", ""]
        lines.append(render_row([escape(column.title) for column in titles]))
        lines.append(render_row(["---" if column.is_text else "--:" for column in titles]))
        lines += [
            render_row([_cell(table.columns[place], row[place]) for place in columns])
            for row in section.rows
        ]
        lines += ["", *_list(section.notes)]
    lines += _list(table.notes)
    return "\n".join(lines).rstrip("\n") + "\n"


def escape(text: str) -> str:
    """Text that means itself: one line, no markup, no link, no HTML, no end of a cell."""
    return re.sub(r"([\\`*_\[\]<>|~#&$])", r"\\\1", " ".join(text.split()))


def _cell(column: Column, value: Value) -> str:
    return escape(plain(column, value))


def render_row(cells: list[str]) -> str:
    """A line of a table; the cells are escaped already."""
    return f"| {' | '.join(cells)} |"


def _list(notes: tuple[str, ...]) -> list[str]:
    return [*(f"- {escape(note)}" for note in notes), ""] if notes else []
