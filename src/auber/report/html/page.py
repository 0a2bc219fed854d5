"""What a page consists of, and how it becomes one HTML file with its figures beside it.

The file needs nothing else: style and script are named by their hashes in a content security
policy, figures are embedded as data, and nothing else may run or load. The templates escape every
text.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import jinja2
from markupsafe import Markup
from matplotlib.figure import Figure

from auber.errors import RunError
from auber.report.analysis import Report
from auber.report.answer import Verdict
from auber.report.figures import SHADES, HeadMap, style, to_svg, write_figure
from auber.report.tables import LONG, WRITERS, Table, is_numeric
from auber.system.files import write_text

INDEX, FIGURES = "index.html", "figures"


@dataclass(frozen=True)
class Drawing:
    """One figure; `name` is that of its files."""

    name: str
    title: str
    draw: Callable[[], Figure]

    @cached_property
    def figure(self) -> Figure:
        """The drawn figure, its layout computed once for all files."""
        figure = self.draw()
        with style():
            figure.draw_without_rendering()
        figure.set_layout_engine("none")
        return figure

    @cached_property
    def svg(self) -> str:
        """The figure as SVG."""
        return to_svg(self.figure)


@dataclass(frozen=True)
class Block:
    """A table, or maps of heads or figures side by side, with a caption; or notes alone.

    Of a table the first column names the rows; a folded one is opened by the reader. The figures
    of maps are linked, not embedded.
    """

    caption: str = ""
    drawings: Sequence[Drawing] = ()
    maps: Sequence[HeadMap] = ()
    rows: Sequence[Mapping[str, str]] = ()
    notes: Sequence[str] = ()
    folded: bool = False

    def __bool__(self) -> bool:
        """Whether there is something to show."""
        return bool(self.drawings or self.maps or self.rows or (self.notes and not self.caption))


class Section:
    """A part of the page that the contents name; one without a block is not displayed."""

    def __init__(self, anchor: str, title: str, *blocks: Block) -> None:
        self.anchor = anchor
        self.title = title
        self.blocks = tuple(filter(None, blocks))


@dataclass(frozen=True)
class Page:
    """The whole page."""

    title: str
    subtitle: str
    verdicts: Sequence[Verdict]
    sections: Sequence[Section]
    report: Report | None = None  # of a study
    tables: Sequence[Table] = ()  # that are also files

    @property
    def drawings(self) -> Iterator[Drawing]:
        """Every figure in order."""
        for section in self.sections:
            for block in section.blocks:
                yield from block.drawings


def make_blocks(table: Table) -> list[Block]:
    """Return the tables of a report without empty columns, one for each section."""
    blocks = []
    for shown in table.sections():
        cells = shown.cells
        cells = cells.loc[:, cells.ne("").any() | (cells.columns == cells.columns[0])]
        notes = (*shown.notes, *table.notes)
        blocks.append(Block(shown.caption, rows=cells.to_dict("records"), notes=notes))
    return blocks


def render_page(page: Page) -> str:
    """Return the page as one HTML file."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("auber.report.html"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"column_classes": _column_classes, "base64": _encode}
    # Our own files: the style sheet and the script take no text of runs.
    style = Markup(environment.get_template("style.css").render(shades=SHADES))  # nosec B704
    script = Markup(environment.get_template("script.js").render())  # nosec B704
    hashes = [_encode(hashlib.sha256(text.encode()).digest()) for text in (style, script)]
    return environment.get_template("page.html").render(
        page=page, style=style, script=script, hashes=hashes
    )


def _encode(data: str | bytes) -> str:
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


def _column_classes(rows: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the CSS class of each column."""
    found = {}
    for name in rows[0]:
        cells = [row[name] for row in rows]
        is_long = max(map(len, cells)) > LONG
        found[name] = "number" if is_numeric(cells) else "long" if is_long else ""
    return found


def write_page(page: Page, out: Path) -> tuple[Path, ...]:
    """Write the page, its tables, and each figure as SVG and PDF; return page and figures."""
    written = [out / INDEX]
    try:
        (out / FIGURES).mkdir(parents=True, exist_ok=True)
        write_text(out / INDEX, render_page(page))
        for table in page.tables:
            for suffix, write in WRITERS.items():
                write_text(out / f"{table.name}.{suffix}", write(table))
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
