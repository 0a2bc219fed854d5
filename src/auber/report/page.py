"""The page of a report: its content, and how it becomes one HTML file with its figures beside it.

The file needs nothing else: style and script are named by their hashes in a content security
policy, figures are embedded as data, and nothing else may run or load. The templates hold the
structure and the captions, and escape every text.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from auber.data.user_rows import OWN
from auber.errors import RunError
from auber.report import figures, run_tables
from auber.report.analysis import Report, Section, analyse
from auber.report.answer import Verdict, judge_runs, judge_section, search_start
from auber.report.head_maps import SHADES, HeadMap, map_heads
from auber.report.layers import Run, read_runs, read_sources
from auber.report.paper_tables import all_tables
from auber.report.records import count, group, ordered
from auber.report.results_file import ResultsFile
from auber.report.runs import pool_runs
from auber.report.tables import WRITERS, Grid, Table
from auber.run.files import is_run
from auber.system.files import write_text

INDEX, FIGURES = "index.html", "figures"

Grids = Mapping[str, Sequence[Grid]]


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
        with figures.style():
            figure.draw_without_rendering()
        figure.set_layout_engine("none")
        return figure

    @cached_property
    def svg(self) -> str:
        """The figure as SVG."""
        return figures.to_svg(self.figure)


@dataclass(frozen=True)
class PageSection:
    """The runs of one model and protocol, or those that stand side by side."""

    figures: Mapping[str, Drawing]
    maps: Mapping[str, Sequence[HeadMap]]
    start: str  # what the searches started from
    grids: Grids
    notes: Sequence[str] = ()
    end: str = ""  # of anchors
    place: str = ""  # model and protocol, behind titles


@dataclass(frozen=True)
class Page:
    """The content of a page."""

    title: str
    subtitle: str
    verdicts: Sequence[Verdict]
    parts: Sequence[PageSection]
    grids: Grids
    notes: Sequence[str] = ()  # saved beside the runs
    legends: Sequence[str] = ()  # of all tables
    report: Report | None = None  # of a study
    tables: Sequence[Table] = ()  # that are also files

    @property
    def models(self) -> Sequence[Grid]:
        """The table of score, size and speed of single runs; empty for a study."""
        return self.parts[0].grids.get("models", ())

    @property
    def drawings(self) -> list[Drawing]:
        """Every figure in order."""
        return [drawing for part in self.parts for drawing in part.figures.values()]


def make_page(places: Sequence[str | Path], extras: Sequence[ResultsFile] = ()) -> Page:
    """Return the page of runs side by side if each place is one run, else of all runs together.

    `extras` are results of other commands to show beside them.
    """
    speed = [grid for file in extras for grid in run_tables.read_speed(file)]
    if all(is_run(place) for place in places):
        return make_run_page(read_runs(places), speed)
    return _make_study_page(places, speed)


def make_run_page(runs: Sequence[Run], speed: Sequence[Grid] = ()) -> Page:
    """Return the page of some runs side by side."""
    names = [dict.fromkeys(each) for each in zip(*(run.record.key for run in runs), strict=True)]
    models, protocols, tasks, _, seeds, _ = (
        ", ".join("own rows" if name == OWN else str(name) for name in each) for each in names
    )
    # The protocol is about the rewards of searches.
    protocol = f"protocol {protocols}; " if any(run.record.rewards_asked for run in runs) else ""
    subtitle = f"{models}; {tasks}; {protocol}seed {seeds}"
    cells = {
        task: {run.label: [run] for run in of_task}
        for task, of_task in group(runs, lambda run: run.record.task).items()
    }
    grids = {
        "models": [run_tables.compare_models(runs)],
        "training": [run_tables.list_costs(runs)],
        "layers": [run_tables.list_layers(run) for run in runs if run.searched],
    }
    part = PageSection(_draw_section(cells), map_heads(cells), search_start(runs), grids)
    settings = run_tables.list_settings({run.label: [run.record] for run in runs})
    differing = settings.cells[settings.cells[[run.label for run in runs]].nunique(axis=1) > 1]
    page_grids = {
        "speed": speed,
        "settings": [Grid("Settings that differ", differing), settings],
        "origins": [run_tables.list_origins(runs)],
    }
    title = f"{len(runs)} runs side by side"
    if len(runs) == 1:
        title = f"{runs[0].record.title} on {tasks}"
    return Page(title, subtitle, judge_runs(runs), [part], page_grids)


def _make_study_page(places: Sequence[str | Path], speed: Sequence[Grid]) -> Page:
    """Return the page of a study, or of runs that are read together."""
    sources, runs = read_sources(places)
    source = pool_runs(sources)
    report = analyse(source)
    tables = all_tables(report)
    by_place = group(runs, lambda run: run.record.key[:2])
    parts = []
    for number, section in enumerate(report.sections, 1):
        place = (section.model, section.protocol)
        own = by_place.get(place, [])
        cells: dict[str, dict[str, list[Run]]] = {}
        for task, of_task in group(own, lambda run: run.record.task).items():
            by_method = group(of_task, lambda run: run.record.method)
            cells[task] = {method: by_method[method] for method in ordered(by_method)}
        shown = {table.name: table.grids().get(place) for table in tables}
        grids = {name: [grid.filled._replace(notes=())] for name, grid in shown.items() if grid}
        notes = dict.fromkeys(note for grid in shown.values() if grid for note in grid.notes)
        ends = ("", "") if len(report.sections) == 1 else (f"-{number}", f": {section.name}")
        drawings = _draw_section(cells, section, ends[0])
        parts.append(
            PageSection(drawings, map_heads(cells), search_start(own), grids, [*notes], *ends)
        )
    left_out = pd.DataFrame([
        {"run": run.folder, "reason": run.reason} for run in report.left_out
    ])  # fmt: skip
    page_grids = {
        "tasks": [grid.filled for grid in tables[0].grids().values()],
        "speed": speed,
        "runs": [
            run_tables.list_runs(runs),
            Grid("Runs without a result, in no number here", left_out),
        ],
        "settings": [run_tables.list_settings({"value": source.records})],
        "origins": [run_tables.count_origins(source.records)],
    }
    models = sorted({section.model for section in report.sections})
    tasks = sorted({str(row["task"]) for row in report.tasks})
    return Page(
        "What pruning costs and what it buys",
        f"{', '.join(models)}; {', '.join(tasks)}; {count(report.runs, 'finished run')}",
        [*map(judge_section, report.sections)],
        parts,
        page_grids,
        source.notes,
        [*dict.fromkeys(note for table in tables for note in table.notes)],
        report,
        tables,
    )


def _draw_section(
    cells: figures.RunsByTask, section: Section | None = None, end: str = ""
) -> dict[str, Drawing]:
    """Return the figures of some runs by name; a study has a section of comparisons."""
    found = {}

    def add(name: str, title: str, draw: Callable[..., Figure], *arguments: Any) -> None:
        found[name] = Drawing(f"{name}{end}", title, partial(draw, *arguments))

    sizes, axis = figures.find_sizes(cells, pooled=section is not None)
    if any(sum(map(len, of.values())) > 1 for of in sizes.values()):
        add("sizes", "Score against size", figures.draw_sizes, sizes, axis)
    if section is not None and section.rows:
        add("scores", "Dev scores", figures.draw_scores, section, cells)
    maps = [
        [replace(each, title=f"{task}: {each.title}") for each in of]
        for task, of in map_heads(cells).items()
    ]
    if maps:
        add("heads", f"Heads removed in {', '.join(cells)}", figures.draw_heads, maps)
    rows = {
        name if len(cells) == 1 else f"{task}, {name}": runs
        for task, of in cells.items()
        for name, runs in of.items()
    }
    layers = {
        name: [layer for run in runs for layer, _ in run.searched if layer.gains]
        for name, runs in rows.items()
    }
    searches = {name: of for name, of in layers.items() if of}
    if section is not None and searches:
        add("search", "Searches", figures.draw_searches, searches)
    elif section is None:
        for number, (name, of) in enumerate(searches.items(), 1):
            record = rows[name][0].record
            asked, computed = record.rewards_asked, record.rewards_computed
            title = f"{name}: {asked} rewards requested, {computed} computed"
            by_layer = {f"layer {layer.index}": [layer] for layer in of}
            end_of_name = "" if len(rows) == 1 else f"-{number}"
            add(f"search{end_of_name}", title, figures.draw_searches, by_layer)
    return found


def render_page(page: Page) -> str:
    """Return the page as one HTML file."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("auber.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["base64"] = _encode
    # Our own files: the style sheet and the script take no text of runs.
    style = Markup(environment.get_template("style.css").render(shades=SHADES))  # nosec B704
    script = Markup(environment.get_template("script.js").render())  # nosec B704
    hashes = [_encode(hashlib.sha256(text.encode()).digest()) for text in (style, script)]
    return environment.get_template("page.html").render(
        page=page, style=style, script=script, hashes=hashes
    )


def _encode(data: str | bytes) -> str:
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


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
            figures.write_figure(drawing.figure, path.with_suffix(".pdf"))
            written += [path, path.with_suffix(".pdf")]
    except OSError as error:
        raise RunError(
            f"{out}: cannot be written ({error}); it must be a folder of its own"
        ) from error
    return tuple(written)
