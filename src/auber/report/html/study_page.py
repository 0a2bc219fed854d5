"""The page of many runs: the verdict first, then scores, heads, searches and times by task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean

from auber.report.analysis import Report, analyse, group
from auber.report.analysis import Section as Evidence
from auber.report.answer import answers
from auber.report.figures import HeadMap, ScoreRow, draw_heads, draw_scores, make_shades
from auber.report.html.page import (
    Block,
    Drawing,
    Page,
    Section,
    Verdict,
    make_blocks,
    make_slugs,
)
from auber.report.html.shared import (
    curves_of,
    describe_searches,
    draw_curves,
    draw_times,
    extra_sections,
    settings_rows,
    time_parts,
)
from auber.report.layers import Run
from auber.report.paper_tables import RULE, all_tables
from auber.report.records import CONTROLS, SUBJECT, ordered
from auber.report.results_file import ResultsFile
from auber.report.runs import Source, pool
from auber.report.tables import Table
from auber.report.words import commit_of, count, device_of, versions_of

Cells = Mapping[str, Mapping[str, Sequence[Run]]]  # runs by task and method


def make_study_page(
    sources: Sequence[Source], runs: Sequence[Run], extras: Sequence[ResultsFile] = ()
) -> Page:
    """Return everything about a study, or about runs that are read together."""
    report = analyse(pool(sources))
    tables = all_tables(report)
    places = [f"{section.model}, {section.protocol}" for section in report.sections]
    slugs = make_slugs(places)
    by_place = group(runs, lambda run: f"{run.record.model}, {run.record.protocol}")
    sections: list[Section] = []
    for section, place in zip(report.sections, places, strict=True):
        ends = (f"-{slugs[place]}", f": {place}") if len(places) > 1 else ("", "")
        sections += _evidence(section, by_place.get(place, []), tables[1:], *ends)
    every = settings_rows({"value": [record for source in sources for record in source.records]})
    caption = "All settings, with every value in these runs"
    sections += [
        *extra_sections(extras),
        Section("tasks", "Tasks", *make_blocks(replace(tables[0], notes=()))),
        Section("reading", "How to read the tables", Block(notes=_legends(tables))),
        Section("runs", "Every run", _list_runs(runs), _list_left_out(report)),
        Section("settings", "Configuration", Block(caption, rows=every, folded=True)),
        Section("origins", "Provenance", *_origins(sources)),
    ]
    models = sorted({section.model for section in report.sections})
    tasks = sorted({row.task for row in report.tasks})
    subtitle = f"{', '.join(models)}; {', '.join(tasks)}; {count(report.runs, 'finished run')}"
    verdicts = [
        Verdict(f"{each.model}, protocol {each.protocol}", each.headline, each.points, each.label)
        for each in answers(report)
    ]
    return Page(
        "Does pruning heads help here, and what does it cost?", subtitle, verdicts, sections
    )


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
    key = (section.model, section.protocol)
    for table in tables:
        rows = tuple(row for row in table.rows if row[:2] == key)
        part = table.parts.get(key)
        parts = {key: part._replace(notes=())} if part else {}
        own[table.name] = make_blocks(replace(table, rows=rows, notes=(), parts=parts))
        notes |= dict.fromkeys(part.notes if part and rows else ())
    careful = Block(notes=tuple(notes))
    scores = (_scores(section, cells, end), *own["table2"], *own["table3"], careful)
    yield Section(f"scores{end}", f"Dev scores{place}", *scores)
    comparisons = (*own["comparisons"], *own["overfitting"])
    yield Section(f"comparisons{end}", f"Comparisons{place}", *comparisons)
    yield Section(f"heads{end}", f"Heads{place}", *_heads(cells, end))
    yield Section(f"search{end}", f"Search{place}", _searches(cells, end))
    yield Section(f"time{end}", f"Time{place}", _times(cells, end), *own["costs"])


def _scores(section: Evidence, cells: Cells, end: str) -> Block:
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
    alt = "Dev scores. " + "; ".join(
        f"{title}: {', '.join(f'{name} {row.mean:.2f}' for name, row in rows.items())}"
        for title, rows in panels.items()
    )
    draw = partial(draw_scores, panels, "points", majority)
    caption = (
        "Dev scores: single runs, their mean over the seeds, and its 95 % t interval, which may go "
        "on beyond the edge. With two seeds an interval means little."
    )
    return Block(caption, [Drawing(f"scores{end}", "Dev scores", alt, draw)])


def _heads(cells: Cells, end: str) -> list[Block]:
    """Map how often each head was removed, by task and method; one figure has all maps."""
    by_task = {
        task: [
            found
            for method, runs in by_method.items()
            if method not in CONTROLS and (found := _map_method(method, runs))
        ]
        for task, by_method in cells.items()
    }
    caption = "in how many runs each head was removed; stronger means more often."
    blocks = [Block(f"{task}: {caption}", maps=maps) for task, maps in by_task.items() if maps]
    rows = [
        [replace(each, title=f"{task}: {each.title}") for each in maps]
        for task, maps in by_task.items()
        if maps
    ]
    draw = partial(draw_heads, rows)
    drawing = Drawing(f"heads{end}", f"Heads removed in {', '.join(by_task)}", "", draw)
    return [*blocks[:-1], *(replace(block, drawings=[drawing]) for block in blocks[-1:])]


def _map_method(method: str, runs: Sequence[Run]) -> HeadMap | None:
    sizes = {(run.record.layers, run.record.heads) for run in runs}
    if len(sizes) > 1:
        return None  # heads of models of different sizes are different heads
    ((num_layers, num_heads),) = sizes
    counts = Counter(
        (layer, head) for run in runs for layer, heads in run.plan.heads.items() for head in heads
    )
    numbers = [[counts[layer, head] for head in range(num_heads)] for layer in range(num_layers)]
    texts = [
        [f"layer {i}, head {j}: removed in {n} of {len(runs)}" for j, n in enumerate(row)]
        for i, row in enumerate(numbers)
    ]
    title = f"{method}, {count(len(runs), 'run')}"
    return HeadMap(title, make_shades(numbers, "counts"), texts)


def _searches(cells: Cells, end: str) -> Block:
    panels = {}
    for task, by_method in cells.items():
        for method, runs in by_method.items():
            curves = [
                curve for run in runs for curve in curves_of(run, f"seed {run.record.seed}, ")
            ]
            if curves:
                panels[f"{task}, {method}"] = curves
    runs = [run for by_method in cells.values() for found in by_method.values() for run in found]
    caption = (
        f"{describe_searches(runs)[1]}; thin: a layer of a run, strong: the mean. A gain in reward "
        "need not be a gain on dev."
    )
    return Block(caption, draw_curves(f"search{end}", "Searches", panels))


def _times(cells: Cells, end: str) -> Block:
    panels: dict[str, dict[str, dict[str, float]]] = {}
    for task, by_method in cells.items():
        panels[task] = {}
        for method, runs in by_method.items():
            parts = [time_parts(run.record) for run in runs]
            panels[task][method] = {name: fmean(each[name] for each in parts) for name in parts[0]}
    caption = "Where the seconds of a run went, mean over the runs of each method."
    drawings = [draw_times(f"time{end}", "Seconds of a run", panels)] if panels else []
    return Block(caption, drawings)


def _legends(tables: Iterable[Table]) -> list[str]:
    """Return the notes of all tables, each once, the rule of all verdicts first."""
    seen: set[str] = set()
    sentences = [RULE]
    for table in tables:
        new = [note for note in table.notes if note not in seen]
        seen.update(new)
        sentences += [f"{table.title}. {' '.join(new).replace(f' {RULE}', '')}"] if new else []
    return sentences


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


def _origins(sources: Sequence[Source]) -> tuple[Block, Block]:
    notes = dict.fromkeys(f"Note: {note}" for source in sources for note in source.notes)
    records = [record for source in sources for record in source.records]
    by_origin = group(
        records,
        lambda record: (
            record.origin.command or "started from Python",
            commit_of(record.origin),
            device_of(record.origin),
        ),
    )
    rows = [
        {
            **dict(zip(("command", "commit", "device"), origin, strict=True)),
            "runs and starts": str(len(found)),
            "seconds": f"{sum(record.seconds for record in found):.0f}",
        }
        for origin, found in sorted(by_origin.items())
    ]
    versions = sorted({versions_of(record.origin) for record in records})
    table = Block("Where the numbers come from", rows=rows, notes=versions)
    return Block(notes=tuple(notes)), table
