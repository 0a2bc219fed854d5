"""The tables of a report as data frames, and their Markdown, CSV and LaTeX files.

`Table.data` has one value per cell. Other formats show fewer columns: `dev` and `dev deviation`
become "84.3 ± 0.7", `interval low` and `interval high` become "-0.5 to +2.0".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pandas as pd

FOLDER = "report"  # of tables and page in the folder of a run or a study

_DECIMALS = {"P": 1, "p": 4, "corrected p": 4, "smallest exact p": 6, "seconds": 1}
_TWO_DECIMALS = re.compile(r"^(published )?dev(?! rows)|^train(?! rows)|gap|difference|detectable")
_SIGNED = re.compile(r"^gap( of .*)?$|difference")
_PLACE = ["model", "protocol"]
_PAIR = re.compile(r" (deviation|low|high)$")
LONG = 40  # characters of a cell that wraps
_NUMBER = re.compile(r"[-+]?\d+(,\d{3})*(\.\d*)?(e[-+]?\d+)?( |$)")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
# Characters of Markdown and LaTeX that would not stand for themselves.
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~#&$])")
_LATEX = str.maketrans({
    **{special: f"\\{special}" for special in "{}$&#%_"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    # At the start of a row these would be arguments of the line break before.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
})  # fmt: skip

Value = str | float | None
SectionKey = tuple[str, str]  # model and protocol


class SectionNotes(NamedTuple):
    """The name, the label and the notes of one model and protocol in a table."""

    name: str
    label: str | None = None  # that runs are missing
    notes: tuple[str, ...] = ()


class Grid(NamedTuple):
    """A table of text; the first column names the rows."""

    title: str
    cells: pd.DataFrame
    notes: Sequence[str] = ()
    folded: bool = False  # on a page, until the reader opens it

    @property
    def rows(self) -> list[dict[str, str]]:
        """The cells of each row by column."""
        rows: list[dict[str, str]] = self.cells.to_dict("records")
        return rows

    @property
    def kinds(self) -> dict[str, str]:
        """What each column holds: a `number`, `long` text that wraps, or other text."""
        kinds = {}
        for title, cells in self.cells.items():
            longest = cells.str.len().max()
            kinds[str(title)] = "number" if is_numeric(cells) else "long" * bool(longest > LONG)
        return kinds

    @property
    def is_wide(self) -> bool:
        """Whether the columns, their titles wrapped, are wider than a phone; two always fit."""
        widths = [max(map(len, (*cells, *title.split()))) for title, cells in self.cells.items()]
        return len(widths) > 2 and sum(widths) + 2 * len(widths) > 46

    @property
    def filled(self) -> Grid:
        """The table without empty columns, but with its first one."""
        is_filled = self.cells.ne("").any() | (self.cells.columns == self.cells.columns[0])
        return self._replace(cells=self.cells.loc[:, is_filled])


@dataclass(frozen=True)
class Table:
    """One table; columns `model` and `protocol` at the start divide it into sections."""

    name: str
    title: str
    data: pd.DataFrame  # one value per cell
    hidden: Sequence[str] = ()  # columns for data files only
    brief: Sequence[str] = ()  # columns for a terminal
    parts: Mapping[SectionKey, SectionNotes] = field(default_factory=dict)
    notes: Sequence[str] = ()
    empty: str = "No runs."

    def grids(self, *, brief: bool = False) -> dict[SectionKey | None, Grid]:
        """Return the text of each model and protocol; columns of a pair are joined."""
        titles = dict.fromkeys(_PAIR.sub("", column) for column in self.data)
        left_out = {*_PLACE, *self.hidden}
        columns = self.brief if brief else [title for title in titles if title not in left_out]

        def show(data: pd.DataFrame) -> pd.DataFrame:
            rows = data.to_dict("records")
            return pd.DataFrame({title: [_cell(title, row) for row in rows] for title in columns})

        if self.data.empty:
            return {}
        if [*self.data][:2] != _PLACE:
            return {None: Grid(self.title, show(self.data))}
        found: dict[SectionKey | None, Grid] = {}
        for place, data in self.data.groupby(_PLACE, sort=False):
            part = self.parts[place]
            label = f" ({part.label})" if part.label else ""
            title = f"{self.title}; {part.name}{label}"
            found[place] = Grid(title, show(data), part.notes)
        return found


def _cell(title: str, row: Mapping[str, Value]) -> str:
    if f"{title} low" in row:
        low, high = (_text(title, row[f"{title} {end}"]) for end in ("low", "high"))
        return low if low == high else f"{low} to {high}"
    deviation = row.get(f"{title} deviation")
    text = _text(title, row[title])
    return text if deviation is None else f"{text} ± {deviation:.{_decimals(title)}f}"


def _text(title: str, value: Value) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    rounded = round(value, _decimals(title)) + 0.0  # no minus before a zero
    sign = "+" if rounded > 0 and _SIGNED.search(title) else ""
    return f"{sign}{rounded:.{_decimals(title)}f}"


def _decimals(title: str) -> int:
    known = _DECIMALS.get(title.removeprefix("gap "))
    return (2 if _TWO_DECIMALS.search(title) else 0) if known is None else known


def is_numeric(cells: Iterable[str]) -> bool:
    """Return whether a column of text holds numbers, which are aligned to the right."""
    found = [cell for cell in cells if cell.strip("-")]
    return bool(found) and all(map(_NUMBER.match, found))


def to_markdown(table: Table, level: int = 1) -> str:
    """Return a table as Markdown that begins with a heading of this level."""
    lines = [f"{'#' * level} {escape_markdown(table.title)}", ""]
    if table.data.empty:
        lines += [escape_markdown(table.empty), ""]
    for place, grid in table.grids().items():
        if place is not None:
            heading = grid.title.removeprefix(f"{table.title}; ")
            lines += [f"{'#' * (level + 1)} {escape_markdown(heading)}", ""]
        cells = grid.cells.map(escape_markdown).rename(columns=escape_markdown)
        lines += [*markdown_lines(cells), "", *_notes(grid.notes)]
    return "\n".join([*lines, *_notes(table.notes)]).rstrip("\n") + "\n"


def markdown_lines(cells: pd.DataFrame) -> list[str]:
    """Return the lines of a table with cells of Markdown."""
    rules = ["--:" if is_numeric(cells[title]) else "---" for title in cells]
    rows = [[*cells], rules, *cells.to_numpy().tolist()]
    return [f"| {' | '.join(row)} |" for row in rows]


def escape_markdown(text: str) -> str:
    """Return one line of text without markup, links or HTML."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def _notes(notes: Sequence[str]) -> list[str]:
    return [*(f"- {escape_markdown(note)}" for note in notes), ""] if notes else []


def to_csv(table: Table) -> str:
    """Return all columns as CSV, numbers with up to six decimals; no text is a formula."""

    def cell(value: Value) -> str:
        if value is None:
            return ""
        if isinstance(value, str):  # a lone \r would not be quoted, and start a new row
            return (f"'{value}" if value.startswith(_FORMULA) else value).replace("\r", " ")
        return f"{round(value, 6) + 0.0:.6f}".rstrip("0").rstrip(".")

    text: str = table.data.map(cell).to_csv(index=False, lineterminator="\n")
    return text


def to_latex(table: Table) -> str:
    r"""Return one float for each section, to `\input`, with booktabs' rules."""
    floats = [
        r"% \usepackage{booktabs} in the preamble; wide: use a landscape page or \footnotesize"
    ]
    if table.data.empty:
        floats.append(f"% {table.empty}")
    for grid in table.grids().values():
        escaped, shape = grid.cells.map(escape_latex), ""
        for title, kind in grid.kinds.items():
            shape += {"number": "r", "long": r"p{0.22\linewidth}", "": "l"}[kind]
            if kind == "number":
                escaped[title] = escaped[title].str.replace("-", "$-$")
        notes = (f"{grid.title}.", *grid.notes, *table.notes)
        styler = escaped.rename(columns=escape_latex).style.hide(axis="index")
        text = styler.to_latex(
            environment="table*",
            position_float="centering",
            hrules=True,
            column_format=shape,
            caption=" ".join(map(escape_latex, notes)),
        )
        floats.append(text.rstrip("\n"))
    return "\n".join(floats) + "\n"


def escape_latex(text: str) -> str:
    """Return one line of text without commands."""
    return " ".join(text.split()).translate(_LATEX)


WRITERS = {"md": to_markdown, "csv": to_csv, "tex": to_latex}
