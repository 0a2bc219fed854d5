"""The page of many runs: the verdict first, then scores, heads, searches and times by task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from auber.report.analysis import Report, analyse
from auber.report.analysis import Section as Evidence
from auber.report.answer import verdicts
from auber.report.figures import (
    HeadMap,
    ScoreRow,
    draw_bars,
    draw_heads,
    draw_scores,
    draw_searches,
    make_shades,
)
from auber.report.html.page import (
    TIME_COLOURS,
    Block,
    Drawing,
    Page,
    Section,
    curves_of,
    extra_sections,
    make_blocks,
    search_caption,
    settings_rows,
    time_parts,
)
from auber.report.layers import Run
from auber.report.paper_tables import all_tables
from auber.report.records import CONTROLS, SUBJECT, count, group, ordered
from auber.report.results_file import ResultsFile
from auber.report.runs import Source, pool
from auber.report.tables import Table

Cells = Mapping[str, Mapping[str, Sequence[Run]]]  # runs by task and method


def make_study_page(
    sources: Sequence[Source], runs: Sequence[Run], extras: Sequence[ResultsFile] = ()
) -> Page:
    """Return everything about a study, or about runs that are read together."""
    report = analyse(pool(sources))
    tables = all_tables(report)
    by_place = group(runs, lambda run: (run.record.model, run.record.protocol))
    sections: list[Section] = []
    for number, section in enumerate(report.sections, 1):
        place = (section.model, section.protocol)
        ends = ("", "") if len(report.sections) == 1 else (f"-{number}", f": {', '.join(place)}")
        sections += _evidence(section, by_place.get(place, []), tables[1:], *ends)
    records = [record for source in sources for record in source.records]
    caption = "All settings, with every value in these runs"
    legends = dict.fromkeys(note for table in tables for note in table.notes)
    sections += [
        *extra_sections(extras),
        Section("tasks", "Tasks", *make_blocks(replace(tables[0], notes=()))),
        Section("reading", "How to read the tables", Block(notes=[*legends])),
        Section("runs", "Every run", _list_runs(runs), _list_left_out(report)),
        Section(
            "settings",
            "Configuration",
            Block(caption, rows=settings_rows({"value": records}), folded=True),
        ),
        Section("origins", "Provenance", *_list_origins(sources)),
    ]
    models = sorted({section.model for section in report.sections})
    tasks = sorted({row.task for row in report.tasks})
    subtitle = f"{', '.join(models)}; {', '.join(tasks)}; {count(report.runs, 'finished run')}"
    title = "Does pruning heads help here, and what does it cost?"
    return Page(title, subtitle, verdicts(report), sections, report, tables)


def _evidence(
    section: Evidence, runs: Sequence[Run], tables: Sequence[Table], end: str, place: str
) -> Iterator[Section]:
    """Yield the sections of one model under one protocol; `end` and `place` name them."""
    cells = {}
    for task, of_task in group(runs, lambda run: run.record.task).items():
        by_method = group(of_task, lambda run: run.record.method)
        cells[task] = {method: by_method[method] for method in ordered(by_method)}
    own: dict[str, list[Block]] = {}
    notes: dict[str, None] = {}
    for table in tables:
        of_place, of_table = table.of((section.model, section.protocol))
        own[table.name] = make_blocks(of_place)
        notes |= dict.fromkeys(of_table if own[table.name] else ())
    careful = Block(notes=tuple(notes))
    scores = (_draw_scores(section, cells, end), *own["table2"], *own["table3"], careful)
    yield Section(f"scores{end}", f"Dev scores{place}", *scores)
    comparisons = (*own["comparisons"], *own["overfitting"])
    yield Section(f"comparisons{end}", f"Comparisons{place}", *comparisons)
    yield Section(f"heads{end}", f"Heads{place}", *_map_heads(cells, end))
    yield Section(f"search{end}", f"Search{place}", _draw_searches(cells, end))
    yield Section(f"time{end}", f"Time{place}", _draw_times(cells, end), *own["costs"])


def _draw_scores(section: Evidence, cells: Cells, end: str) -> Block:
    panels: dict[str, dict[str, ScoreRow]] = {}
    majority: dict[str, float] = {}
    for task, rows in group(section.rows, lambda row: row.task).items():
        runs = [run.record for of_method in cells[task].values() for run in of_method]
        title = f"{task}, {runs[0].metric}"
        panels[title] = {
            row.method: ScoreRow(
                tuple(100 * run.record.dev for run in cells[task][row.method]),
                row.dev.mean,
                row.dev.low,
                row.dev.high,
                row.method == SUBJECT,
            )
            for row in rows
        }
        shares = {run.majority for run in runs}
        if runs[0].metric == "accuracy" and len(shares) == 1 and (share := shares.pop()):
            majority[title] = 100 * share
    if not panels:
        return Block()
    caption = (
        "Dev scores: single runs, their mean over the seeds, and its 95 % t interval, which may go "
        "on beyond the edge. With two seeds an interval means little."
    )
    draw = partial(draw_scores, panels, majority)
    return Block(caption, [Drawing(f"scores{end}", "Dev scores", draw)])


def _map_heads(cells: Cells, end: str) -> Iterator[Block]:
    """Map how often each head was removed, by task and method; one figure has all maps."""
    found: dict[str, list[HeadMap]] = {}
    for task, by_method in cells.items():
        for method, runs in by_method.items():
            sizes = {(run.record.layers, run.record.heads) for run in runs}
            # Heads of models of different sizes are different heads.
            if method not in CONTROLS and len(sizes) == 1:
                found.setdefault(task, []).append(_map_method(method, runs, sizes.pop()))
    for task, maps in found.items():
        drawings = []
        if task == [*found][-1]:
            rows = [
                [replace(each, title=f"{name}: {each.title}") for each in row]
                for name, row in found.items()
            ]
            title = f"Heads removed in {', '.join(found)}"
            drawings = [Drawing(f"heads{end}", title, partial(draw_heads, rows))]
        caption = f"{task}: in how many runs each head was removed; stronger means more often."
        yield Block(caption, drawings, maps)


def _map_method(method: str, runs: Sequence[Run], size: tuple[int, int]) -> HeadMap:
    numbers = np.zeros(size, dtype=int)
    for run in runs:
        for layer, heads in run.plan.heads.items():
            numbers[layer, list(heads)] += 1
    texts = [
        [f"layer {i}, head {j}: removed in {n} of {len(runs)}" for j, n in enumerate(row)]
        for i, row in enumerate(numbers)
    ]
    title = f"{method}, {count(len(runs), 'run')}"
    return HeadMap(title, make_shades(numbers.tolist(), "counts"), texts)


def _draw_searches(cells: Cells, end: str) -> Block:
    by_panel = {
        f"{task}, {method}": runs
        for task, by_method in cells.items()
        for method, runs in by_method.items()
    }
    panels = {
        title: curves
        for title, runs in by_panel.items()
        if (curves := [curve for run in runs for curve in curves_of(run).values()])
    }
    caption = (
        f"{search_caption(run for runs in by_panel.values() for run in runs)}; thin: a layer of a "
        "run, strong: the mean. A gain in reward need not be a gain on dev."
    )
    drawing = Drawing(f"search{end}", "Searches", partial(draw_searches, panels))
    return Block(caption, [drawing] if panels else [])


def _draw_times(cells: Cells, end: str) -> Block:
    panels = {
        task: {
            method: pd.DataFrame([time_parts(run.record) for run in runs]).mean().to_dict()
            for method, runs in by_method.items()
        }
        for task, by_method in cells.items()
    }
    caption = "Where the seconds of a run went, mean over the runs of each method."
    draw = partial(draw_bars, panels, TIME_COLOURS, "seconds")
    drawing = Drawing(f"time{end}", "Seconds of a run", draw)
    return Block(caption, [drawing] if panels else [])


def _list_runs(runs: Iterable[Run]) -> Block:
    rows = [
        {
            "run": f"{record.task}, {record.method}, seed {record.seed}"
            + (f", draw {record.draw}" if record.draw else ""),
            "model": record.model,
            "protocol": record.protocol,
            "dev": f"{100 * record.dev:.2f}",
            "train": f"{100 * record.train:.2f}",
            "removed": f"{record.removed} of {record.layers * record.heads}",
            "seconds": f"{record.seconds:.1f}",
            "folder": record.folder,
        }
        for record in (run.record for run in runs)
    ]
    note = "The page of a single run, with its search layer by layer: auber report FOLDER."
    return Block(count(len(rows), "finished run"), rows=rows, notes=(note,), folded=True)


def _list_left_out(report: Report) -> Block:
    rows = [{"run": run.folder, "reason": run.reason} for run in report.left_out]
    return Block("Runs without a result, in no number here", rows=rows)


def _list_origins(sources: Sequence[Source]) -> tuple[Block, Block]:
    notes = dict.fromkeys(f"Note: {note}" for source in sources for note in source.notes)
    records = [record for source in sources for record in source.records]
    by_origin = group(records, lambda record: tuple(record.origin.facts.items()))
    rows = [
        {
            **dict(origin),
            "runs and starts": str(len(found)),
            "seconds": f"{sum(record.seconds for record in found):.0f}",
        }
        for origin, found in sorted(by_origin.items())
    ]
    versions = sorted({record.origin.packages for record in records})
    table = Block("Where the numbers come from", rows=rows, notes=versions)
    return Block(notes=tuple(notes)), table
