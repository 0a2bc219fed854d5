"""What a page consists of, and how it becomes one HTML file with its figures beside it.

The file needs nothing else: style and script are named by their hashes in a content security
policy, figures are embedded as data, and nothing else may run or load. The templates escape every
text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import jinja2
from markupsafe import Markup
from matplotlib.figure import Figure

from auber.config import settings
from auber.errors import RunError
from auber.report.analysis import Report
from auber.report.answer import Verdict
from auber.report.figures import (
    SHADES,
    TIME_PART_COLOURS,
    Curve,
    HeadMap,
    style,
    to_svg,
    write_figure,
)
from auber.report.layers import Run
from auber.report.measurements import (
    REGRET,
    draw_regret,
    read_regret,
    read_speed,
    regret_table,
    speed_tables,
)
from auber.report.records import RunRecord
from auber.report.results_file import ResultsFile
from auber.report.tables import LONG, WRITERS, Table, is_numeric
from auber.run.records import TIME_PARTS
from auber.system.files import write_text

INDEX, FIGURES = "index.html", "figures"
TIMES = {**{name: part.words for name, part in TIME_PARTS.items()}, "other": "other"}
TIME_COLOURS = dict(zip(TIMES.values(), TIME_PART_COLOURS, strict=True))


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


# --- parts that several pages share ---


def time_parts(record: RunRecord) -> dict[str, float]:
    """Return where the seconds of a run went."""
    parts = {words: record.times.get(name, 0.0) for name, words in TIMES.items()}
    return {**parts, "other": max(record.seconds - sum(parts.values()), 0.0)}


def search_start(runs: Iterable[Run]) -> str:
    """Return what the searches count their gains from."""
    has_prior = any(run.has_prior for run in runs)
    return "the plan the search started from" if has_prior else "the unpruned layer"


def search_caption(runs: Iterable[Run]) -> str:
    """Return the caption of the figures of searches."""
    return (
        "Best reward found so far against the number of different masks scored, in points over "
        f"{search_start(runs)} on the reward set"
    )


def curves_of(run: Run) -> dict[str, Curve]:
    """Return the searches of a run as gains in points, by layer."""
    return {
        f"layer {layer.index}": Curve(
            layer.gains,
            search.rewards_computed,
            None if layer.chosen is None else 100 * (layer.chosen - (layer.begun or 0.0)),
        )
        for layer, search in run.searched
        if layer.gains
    }


def extra_sections(files: Sequence[ResultsFile]) -> Iterator[Section]:
    """Yield the sections of other commands' results."""
    for number, file in enumerate(files, 1):
        end = f"-{number}" if number > 1 else ""
        if file.kind == REGRET:
            regret = read_regret(file)
            title = "Regret against the number of rewards"
            drawing = Drawing(f"regret{end}", title, partial(draw_regret, regret))
            caption = (
                "Searches replayed on the scores of every mask of some layers, from "
                f"{file.name}: the mean over the layers."
            )
            blocks = [Block(caption, [drawing]), *make_blocks(regret_table(regret))]
            yield Section(f"regret{end}", "Regret", *blocks)
        else:
            tables = speed_tables(read_speed(file))
            blocks = [block for table in tables for block in make_blocks(table)]
            yield Section(f"speed{end}", "Speed", *blocks)


def settings_rows(columns: Mapping[str, Sequence[RunRecord]]) -> list[dict[str, str]]:
    """Return all settings, with the values that the runs of each column have."""
    meaning = {info.key: info.doc for info in settings()}
    used = dict.fromkeys(key for runs in columns.values() for run in runs for key in run.config)
    rows = []
    unknown = [key for key in used if key not in meaning]
    for key in (*(key for key in meaning if key in used), *unknown):
        row = {"setting": key}
        for name, runs in columns.items():
            values = dict.fromkeys(_text(run.config[key]) for run in runs if key in run.config)
            row[name] = ", ".join(values) or "not recorded"
        rows.append({**row, "meaning": meaning.get(key, "")})
    return rows


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# --- files ---


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
