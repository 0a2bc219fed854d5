"""What a page consists of, and how it becomes one HTML file with its figures beside it.

The file needs nothing else: style and script are named by their hashes in a content security
policy, figures are embedded as data, and nothing else may run or load. The templates escape every
text.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from auber.errors import RunError
from auber.report.figures import SHADES, HeadMap, to_svg, write_figure
from auber.report.tables import Table, is_numeric
from auber.system.files import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INDEX, FIGURES = "index.html", "figures"

_LONG = 40  # characters of a cell that wraps


@dataclass(frozen=True)
class Drawing:
    """One figure; `name` is that of its files, `alt` its content in words."""

    name: str
    title: str
    alt: str
    draw: Callable[[], Figure]

    @cached_property
    def figure(self) -> Figure:
        """The drawn figure."""
        return self.draw()

    @cached_property
    def svg(self) -> str:
        """The figure as SVG."""
        return to_svg(self.figure)

    @property
    def data(self) -> str:
        """The SVG as the address of an image."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.svg.encode()).decode()}"


@dataclass(frozen=True)
class Drawings:
    """Figures side by side with a common caption."""

    kind: ClassVar[str] = "drawings"
    caption: str
    drawings: tuple[Drawing, ...]


@dataclass(frozen=True)
class HeadMaps:
    """Maps side by side with a common caption, and the same as figures for their files."""

    kind: ClassVar[str] = "maps"
    caption: str
    maps: tuple[HeadMap, ...]
    drawings: tuple[Drawing, ...]


@dataclass(frozen=True)
class Grid:
    """A table whose first column names the rows; a folded one is opened by the reader."""

    kind: ClassVar[str] = "table"
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    folded: bool = False

    @property
    def classes(self) -> list[str]:
        """The CSS class of each column."""
        found = []
        for cells in zip(*self.rows, strict=True):
            is_long = max(map(len, cells)) > _LONG
            found.append("number" if is_numeric(cells) else "long" if is_long else "")
        return found


@dataclass(frozen=True)
class Words:
    """Sentences, one below the other."""

    kind: ClassVar[str] = "words"
    sentences: tuple[str, ...]


Block = Drawings | HeadMaps | Grid | Words


@dataclass(frozen=True)
class Section:
    """A part of the page that the contents name."""

    anchor: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Verdict:
    """What to know first: one sentence and its reasons."""

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
    def drawings(self) -> Iterator[Drawing]:
        """Every figure in order."""
        for section in self.sections:
            for block in section.blocks:
                if isinstance(block, Drawings | HeadMaps):
                    yield from block.drawings


def make_grid(
    caption: str,
    rows: Iterable[Mapping[str, str]],
    notes: Iterable[str] = (),
    *,
    folded: bool = False,
) -> Grid | None:
    """Return a table of rows with the same keys, None without rows."""
    found = list(rows)
    if not found:
        return None
    cells = tuple(tuple(row.values()) for row in found)
    return Grid(caption, tuple(found[0]), cells, tuple(notes), folded)


def grids(table: Table) -> Iterator[Grid]:
    """Yield the tables of a report without empty columns, one for each section."""
    for shown in table.sections():
        cells = shown.cells
        kept = [name for place, name in enumerate(cells) if place == 0 or any(cells[name])]
        rows = tuple(map(tuple, cells[kept].to_numpy().tolist()))
        caption = table.title if shown.place is None else f"{table.title}; {shown.title}"
        yield Grid(caption, tuple(kept), rows, (*shown.part.notes, *table.notes))


def make_sections(parts: Iterable[tuple[str, str, Sequence[Block | None]]]) -> tuple[Section, ...]:
    """Return the sections (anchor, title, blocks) that have a block, under distinct names."""
    anchors: dict[str, int] = {}
    names: dict[str, int] = {}
    sections = []
    for anchor, title, blocks in parts:
        found = tuple(
            replace(
                block,
                drawings=tuple(replace(d, name=_number(d.name, names)) for d in block.drawings),
            )
            if isinstance(block, Drawings | HeadMaps)
            else block
            for block in blocks
            if block is not None and not (isinstance(block, Drawings) and not block.drawings)
        )
        if found:
            sections.append(Section(_number(anchor, anchors), title, found))
    return tuple(sections)


def _number(name: str, seen: dict[str, int]) -> str:
    while name in seen:
        seen[name] += 1
        name = f"{name}-{seen[name]}"
    seen[name] = 1
    return name


def render_page(page: Page) -> str:
    """Return the page as one HTML file."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("auber.report.html"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Our own files: the style sheet and the script take no text of runs.
    style = Markup(environment.get_template("style.css").render(shades=SHADES))  # nosec B704
    script = Markup(environment.get_template("script.js").render())  # nosec B704
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; "
        f"script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    return environment.get_template("page.html").render(
        page=page, style=style, script=script, policy=policy
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def write_page(page: Page, out: Path) -> tuple[Path, ...]:
    """Write the page, and each figure as SVG and PDF; the page is the first of the paths."""
    written = [out / INDEX]
    try:
        (out / FIGURES).mkdir(parents=True, exist_ok=True)
        write_text(out / INDEX, render_page(page))
        for drawing in page.drawings:
            path = out / FIGURES / f"{drawing.name}.svg"
            write_text(path, drawing.svg)
            write_figure(drawing.figure, path.with_suffix(".pdf"))
            written += [path, path.with_suffix(".pdf")]
    except OSError as error:
        raise RunError(
            f"{out}: cannot be written ({error}); it must be a folder of its own"
        ) from error
    return tuple(written)
