"""The page of many runs: the verdict first, then scores, heads, searches and times by task."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean

from auber.report.analysis import MethodRow, Report, analyse, group
from auber.report.analysis import Section as Evidence
from auber.report.answer import answers
from auber.report.figures import HeadMap, ScoreRow, draw_heads, draw_scores
from auber.report.html.page import (
    Block,
    Drawing,
    Drawings,
    Grid,
    HeadMaps,
    Page,
    Verdict,
    Words,
    grids,
    make_grid,
    make_sections,
)
from auber.report.html.shared import (
    begun_from,
    curves_of,
    draw_times,
    drawings,
    extra_parts,
    search_drawing,
    time_parts,
    values_grid,
)
from auber.report.layers import Run
from auber.report.paper_tables import RULE, all_tables
from auber.report.records import CONTROLS, SUBJECT, ordered
from auber.report.results_file import ResultsFile
from auber.report.runs import Source, pool
from auber.report.tables import Table
from auber.report.words import commit_of, count, device_of, slug, versions_of

Parts = Iterator[tuple[str, str, list[Block | None]]]
ByTask = Mapping[str, Sequence[Run]]


def make_study_page(
    sources: Sequence[Source], runs: Sequence[Run], extras: Sequence[ResultsFile] = ()
) -> Page:
    """Return everything about a study, or about runs that are read together."""
    report = analyse(pool(sources))
    tables = all_tables(report)
    by_place = group(runs, lambda run: (run.record.model, run.record.protocol))
    records = [record for source in sources for record in source.records]
    several = len(report.sections) > 1
    parts: list[tuple[str, str, Sequence[Block | None]]] = [
        part
        for each in report.sections
        for part in _evidence(each, by_place.get((each.model, each.protocol), []), tables, several)
    ]
    parts += [
        *extra_parts(extras),
        ("tasks", "Tasks", list(grids(replace(tables[0], notes=())))),
        ("reading", "How to read the tables", [_legend(tables)]),
        ("runs", "Every run", [_runs_grid(runs), _left_out(report)]),
        ("settings", "Configuration", [values_grid(records)]),
        ("origins", "Provenance", _origins(sources)),
    ]
    models = sorted({section.model for section in report.sections})
    tasks = sorted({row.task for row in report.tasks})
    subtitle = f"{', '.join(models)}; {', '.join(tasks)}; {count(report.runs, 'finished run')}"
    verdicts = tuple(
        Verdict(f"{each.model}, protocol {each.protocol}", each.headline, each.points, each.label)
        for each in answers(report)
    )
    title = "Does pruning heads help here, and what does it cost?"
    return Page(title, subtitle, verdicts, make_sections(parts))


def _evidence(
    section: Evidence, runs: Sequence[Run], tables: Sequence[Table], several: bool
) -> Parts:
    """Yield the sections of one model under one protocol, named after it if there are several."""
    place = (section.model, section.protocol)
    name = slug(*place) if several else ""
    suffix = f": {', '.join(place)}" if several else ""
    by_task = group(runs, lambda run: run.record.task)
    own: dict[str, list[Grid]] = {}
    notes: dict[str, None] = {}
    for table in tables[1:]:
        rows = tuple(row for row in table.rows if row[:2] == place)
        part = table.parts.get(place)
        bare = replace(
            table, rows=rows, notes=(), parts={place: part._replace(notes=())} if part else {}
        )
        own[table.name] = list(grids(bare))
        notes |= dict.fromkeys(part.notes if part and rows else ())
    scores = [_scores(section, by_task, name), *own["table2"], *own["table3"]]
    careful = [Words(tuple(notes))] if notes else []
    yield slug("scores", name), f"Dev scores{suffix}", [*scores, *careful]
    comparisons = [*own["comparisons"], *own["overfitting"]]
    yield slug("comparisons", name), f"Comparisons{suffix}", list(comparisons)
    heads = [_heads(task, of_task, name) for task, of_task in by_task.items()]
    yield slug("heads", name), f"Heads{suffix}", list(heads)
    yield slug("search", name), f"Search{suffix}", [_searches(by_task, name)]
    yield slug("time", name), f"Time{suffix}", [_times(by_task, name), *own["costs"]]


def _scores(section: Evidence, by_task: ByTask, place: str) -> Drawings | None:
    rows = group(section.rows, lambda row: row.task)
    caption = (
        "Dev scores: single runs, their mean over the seeds, and its 95 % t interval. An "
        "arrow marks "
        "an interval that goes on. With two seeds an interval means little."
    )
    found = [
        _task_scores(task, rows[task], by_task[task], place) for task in by_task if task in rows
    ]
    return drawings(caption, found)


def _task_scores(task: str, rows: Sequence[MethodRow], runs: Sequence[Run], place: str) -> Drawing:
    singles: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        singles[run.record.method].append(100 * run.record.dev)
    drawn = [
        ScoreRow(
            row.method, tuple(singles[row.method]), row.dev.mean, row.dev.low, row.dev.high,
            row.method == SUBJECT,
        )
        for row in rows
    ]  # fmt: skip
    metric, shares = runs[0].record.metric, {run.record.majority for run in runs}
    share = shares.pop() if len(shares) == 1 and metric == "accuracy" else None
    majority = None if share is None else 100 * share
    alt = f"Dev {metric} on {task}: " + "; ".join(f"{row.name} {row.mean:.2f}" for row in drawn)
    draw = partial(draw_scores, drawn, f"dev {metric}, points", majority, "95 % interval")
    return Drawing(slug("scores", task, place), task, alt, draw)


def _heads(task: str, runs: Sequence[Run], place: str) -> HeadMaps | None:
    """Map how often each head was removed, one map for each method."""
    pruned = [run for run in runs if run.record.method not in CONTROLS]
    by_method = group(pruned, lambda run: run.record.method)
    maps = []
    for method in ordered(by_method):
        of_method = by_method[method]
        sizes = {(run.record.layers, run.record.heads) for run in of_method}
        if len(sizes) > 1:
            continue  # heads of models of different sizes are different heads
        ((num_layers, num_heads),) = sizes
        counts: dict[int, Counter[int]] = defaultdict(Counter)
        for run in of_method:
            for layer, heads in run.plan.items():
                counts[layer].update(heads)
        runs_of_head = [
            [counts[layer][head] for head in range(num_heads)] for layer in range(num_layers)
        ]
        texts = [
            [f"layer {i}, head {j}: removed in {n} of {len(of_method)}" for j, n in enumerate(row)]
            for i, row in enumerate(runs_of_head)
        ]
        title = f"{method}, {count(len(of_method), 'run')}"
        maps.append(HeadMap(title, runs_of_head, texts, is_gain=False, from_zero=True))
    if not maps:
        return None
    caption = f"{task}: in how many runs each head was removed; stronger means more often."
    drawing = Drawing(slug("heads", task, place), task, caption, partial(draw_heads, maps))
    return HeadMaps(caption, tuple(maps), (drawing,))


def _searches(by_task: ByTask, place: str) -> Drawings | None:
    found = []
    for task, runs in by_task.items():
        by_method = group(runs, lambda run: run.record.method)
        panels = {
            method: curves
            for method in ordered(by_method)
            if (curves := [
                curve
                for run in by_method[method]
                for curve in curves_of(run, f"seed {run.record.seed}, layer {{}}")
            ])
        }  # fmt: skip
        found.append(search_drawing(slug("search", task, place), task, panels))
    begun = begun_from(run for runs in by_task.values() for run in runs)
    caption = (
        "Best reward found so far against the number of different masks scored, in points over "
        f"{begun} on the reward set; thin: a layer of a run, strong: the mean. A gain in "
        "reward need "
        "not be a gain on dev."
    )
    return drawings(caption, found)


def _times(by_task: ByTask, place: str) -> Drawings | None:
    found = []
    for task, runs in by_task.items():
        by_method = group(runs, lambda run: run.record.method)
        rows = {}
        for method in ordered(by_method):
            parts = [time_parts(run.record) for run in by_method[method]]
            rows[method] = {name: fmean(each[name] for each in parts) for name in parts[0]}
        found.append(draw_times(slug("time", task, place), task, rows))
    return drawings("Where the seconds of a run went, mean over the runs of each method.", found)


def _legend(tables: Iterable[Table]) -> Words:
    """Return the notes of all tables, each once, the rule of all verdicts first."""
    seen: set[str] = set()
    sentences = [RULE]
    for table in tables:
        new = [note for note in table.notes if note not in seen]
        seen.update(new)
        sentences += [f"{table.title}. {' '.join(new).replace(f' {RULE}', '')}"] if new else []
    return Words(tuple(sentences))


def _runs_grid(runs: Iterable[Run]) -> Grid | None:
    rows = []
    for run in runs:
        record = run.record
        draw = f", draw {record.draw}" if record.draw else ""
        rows.append({
            "run": f"{record.task}, {record.method}, seed {record.seed}{draw}",
            "model": record.model,
            "protocol": record.protocol,
            "dev": f"{100 * record.dev:.2f}",
            "train": f"{100 * record.train:.2f}",
            "removed": f"{record.removed} of {record.layers * record.heads}",
            "seconds": f"{record.seconds:.1f}",
            "folder": run.label,
        })  # fmt: skip
    notes = ("The page of a single run, with its search layer by layer: auber report FOLDER.",)
    return make_grid(count(len(rows), "finished run"), rows, notes, folded=True)


def _left_out(report: Report) -> Grid | None:
    rows = [{"run": run.folder, "reason": run.reason} for run in report.left_out]
    return make_grid("Runs without a result, in no number here", rows)


def _origins(sources: Sequence[Source]) -> list[Block | None]:
    notes = tuple(dict.fromkeys(f"Note: {note}" for source in sources for note in source.notes))
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
    grid = make_grid("Where the numbers come from", rows, versions)
    return [Words(notes) if notes else None, grid]
