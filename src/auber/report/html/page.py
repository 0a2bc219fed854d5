"""What a page is made of: a verdict, then sections of text, figures and tables, all plain values.

Every text is plain and is escaped where it is rendered. The only markup is a figure's drawing, which `auber.export.charts` makes
of numbers and escaped words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from auber.report.columns import Column, Detail, Table, plain


@dataclass(frozen=True)
class Figure:
    """One drawing; `name` is its file's beside the page."""

    name: str
    title: str
    svg: str


@dataclass(frozen=True)
class Figures:
    """Drawings that stand side by side where there is room, and what is to be known of all of them."""

    kind: ClassVar[str] = "figures"
    caption: str
    items: tuple[Figure, ...]


@dataclass(frozen=True)
class Heading:
    """The head of a column."""

    title: str
    is_text: bool = True


@dataclass(frozen=True)
class Grid:
    """A table; the first cell of a row names the row. A folded one is opened by who wants it."""

    kind: ClassVar[str] = "table"
    caption: str
    columns: tuple[Heading, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    folded: bool = False


@dataclass(frozen=True)
class Words:
    """Sentences, one below the other."""

    kind: ClassVar[str] = "words"
    sentences: tuple[str, ...]


Block = Figures | Grid | Words


@dataclass(frozen=True)
class Section:
    """A part of the page, named in its contents."""

    anchor: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Verdict:
    """What is to be known first: about what, in one sentence, then why."""

    about: str
    headline: str
    points: tuple[str, ...]
    label: str | None = None


@dataclass(frozen=True)
class Page:
    """The whole page."""

    title: str
    subtitle: str
    verdicts: tuple[Verdict, ...]
    sections: tuple[Section, ...]

    @property
    def figures(self) -> Iterator[Figure]:
        """Every drawing, in order."""
        for section in self.sections:
            for block in section.blocks:
                if isinstance(block, Figures):
                    yield from block.items


def section(anchor: str, title: str, blocks: Iterable[Block | None]) -> Section | None:
    """A section of the blocks that are there; None where there are none."""
    found = tuple(block for block in blocks if block is not None)
    return Section(anchor, title, found) if found else None


def figures(caption: str, items: Iterable[Figure | None]) -> Figures | None:
    """The drawings that are there; None where there are none."""
    found = tuple(item for item in items if item is not None)
    return Figures(caption, found) if found else None


def joined(blocks: Iterable[Figures | None]) -> Figures | None:
    """The drawings of several blocks in one row, with all that is said of them."""
    found = [block for block in blocks if block is not None]
    return figures(
        " ".join(block.caption for block in found),
        (item for block in found for item in block.items),
    )


def grids(table: Table) -> Iterator[Grid]:
    """A report's table, one for each of its sections."""
    places = [place for place, column in enumerate(table.columns) if column.detail <= Detail.PAGE]
    columns = tuple(_heading(table.columns[place]) for place in places)
    for part in table.sections:
        rows = tuple(
            tuple(plain(table.columns[place], row[place]) for place in places) for row in part.rows
        )
        caption = table.title if part.title is None else f"{table.title}; {part.title}"
        if rows:
            yield _without_empty(Grid(caption, columns, rows, (*part.notes, *table.notes)))


def _without_empty(grid: Grid) -> Grid:
    """Without the columns that say nothing of any row, such as published numbers of tasks the paper does not have."""
    kept = [
        place
        for place in range(len(grid.columns))
        if place == 0 or any(row[place] for row in grid.rows)
    ]
    columns = tuple(grid.columns[place] for place in kept)
    return replace(
        grid, columns=columns, rows=tuple(tuple(row[place] for place in kept) for row in grid.rows)
    )


def _heading(column: Column) -> Heading:
    return Heading(column.title, column.is_text)


def slug(*words: str) -> str:
    """A name for a file or an anchor, of small letters, digits and dashes alone."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")[:60] or "unnamed"


def distinct(page: Page) -> Page:
    """The page with no two figures or anchors of one name: the second of a name gets a number."""
    names: dict[str, int] = {}
    anchors: dict[str, int] = {}
    sections = []
    for part in page.sections:
        blocks = [
            replace(
                block,
                items=tuple(
                    replace(item, name=_numbered(item.name, names)) for item in block.items
                ),
            )
            if isinstance(block, Figures)
            else block
            for block in part.blocks
        ]
        sections.append(replace(part, anchor=_numbered(part.anchor, anchors), blocks=tuple(blocks)))
    return replace(page, sections=tuple(sections))


def _numbered(name: str, seen: dict[str, int]) -> str:
    while name in seen:
        seen[name] += 1
        name = f"{name}-{seen[name]}"
    seen[name] = 1
    return name
