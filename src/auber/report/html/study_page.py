"""The page of many runs: the answer first, then scores, heads, searches and times by task, and every run in a line."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from auber.report.analysis import MethodRow, Report, analyse
from auber.report.analysis import Section as Evidence
from auber.report.answer import answers
from auber.report.cells import group
from auber.report.collect import pool
from auber.report.columns import Table
from auber.report.html import bars, lines, maps
from auber.report.html.details import extra_sections, values_of
from auber.report.html.model import RunView, StudyView
from auber.report.html.page import (
    Figure,
    Figures,
    Grid,
    Heading,
    Page,
    Section,
    Verdict,
    Words,
    figures,
    grids,
    section,
    slug,
)
from auber.report.html.run_page import begun_from, layer_curves, time_parts
from auber.report.origins import by_origin, versions_of
from auber.report.results_file import ResultsFile
from auber.report.roles import CONTROLS, METHODS, SUBJECT
from auber.report.tables import RULE, all_tables
from auber.report.words import count


def make_study_page(study: StudyView, extras: Sequence[ResultsFile] = ()) -> Page:
    """Everything about a study, or about runs that are read together."""
    report = analyse(pool(study.sources))
    by_place = group(study.runs, lambda run: (run.record.model, run.record.protocol))
    several, tables = len(report.sections) > 1, all_tables(report)
    sections: list[Section | None] = []
    for evidence in report.sections:
        runs = by_place.get((evidence.model, evidence.protocol), [])
        sections += _evidence_sections(evidence, runs, tables[1:], several=several)
    records = [record for source in study.sources for record in source.records]
    sections += [
        *extra_sections(extras),
        section("tasks", "Tasks", grids(replace(tables[0], notes=()))),
        section("reading", "How to read the tables", [_legend(tables)]),
        section("runs", "Every run", [_runs_grid(study.runs), _left_out(report)]),
        section("settings", "Configuration", [values_of(records)]),
        section("origins", "Provenance", _origins(study)),
    ]
    models = sorted({place.model for place in report.sections})
    tasks = sorted({row.task for row in report.tasks})
    subtitle = f"{', '.join(models)}; {', '.join(tasks)}; {count(report.runs, 'finished run')}"
    verdicts = tuple(
        Verdict(
            f"{answer.model}, protocol {answer.protocol}",
            answer.headline,
            answer.points,
            answer.label,
        )
        for answer in answers(report)
    )
    title = "Should heads be pruned here, and what does it give?"
    return Page(title, subtitle, verdicts, tuple(part for part in sections if part is not None))


def _evidence_sections(
    evidence: Evidence, runs: Sequence[RunView], tables: Sequence[Table], *, several: bool
) -> Iterable[Section | None]:
    """One model under one protocol; where there are several, each part says whose it is."""
    place = slug(evidence.model, evidence.protocol) if several else ""
    behind = f": {evidence.model}, {evidence.protocol}" if several else ""
    own = {
        table.name: [
            grid
            for part in table.sections
            if (part.model, part.protocol) == (evidence.model, evidence.protocol)
            for grid in grids(replace(table, sections=(replace(part, notes=()),), notes=()))
        ]
        for table in tables
    }
    by_task = group(runs, lambda run: run.record.task)

    def anchor(name: str) -> str:
        return slug(name, place)

    yield section(
        anchor("scores"),
        f"Dev scores{behind}",
        [
            _scores(evidence, by_task, place),
            *own["table2"],
            *own["table3"],
            _careful(tables, evidence),
        ],
    )
    yield section(
        anchor("comparisons"), f"Comparisons{behind}", [*own["comparisons"], *own["overfitting"]]
    )
    yield section(
        anchor("heads"),
        f"Heads{behind}",
        [_heads(task, of_task, place) for task, of_task in by_task.items()],
    )
    yield section(anchor("search"), f"Search{behind}", [_searches(by_task, place)])
    yield section(anchor("time"), f"Time{behind}", [_times(by_task, place), *own["costs"]])


def _careful(tables: Sequence[Table], evidence: Evidence) -> Words | None:
    """What several tables of one model and protocol must say, each once."""
    parts = [part for table in tables for part in table.sections]
    own = [
        part for part in parts if (part.model, part.protocol) == (evidence.model, evidence.protocol)
    ]
    notes = tuple(dict.fromkeys(note for part in own for note in part.notes))
    return Words(notes) if notes else None


def _legend(tables: Sequence[Table]) -> Words:
    """What the tables' own notes say, each once; the rule of all verdicts first."""
    said: set[str] = set()
    sentences = [RULE]
    for table in tables:
        new = [note for note in table.notes if note not in said]
        said.update(new)
        sentences += [f"{table.title}. {' '.join(new).replace(f' {RULE}', '')}"] if new else []
    return Words(tuple(sentences))


def _scores(
    evidence: Evidence, by_task: Mapping[str, Sequence[RunView]], place: str
) -> Figures | None:
    rows = group(evidence.rows, lambda row: row.task)
    caption = (
        "Dev scores of every method: single runs, their mean over the seeds, and its 95 % t interval; an arrow says that the interval "
        "goes on. With two seeds an interval is of little use, with one there is none."
    )
    return figures(
        caption,
        [
            _task_scores(task, rows[task], runs, place)
            for task, runs in by_task.items()
            if task in rows
        ],
    )


def _task_scores(
    task: str, rows: Sequence[MethodRow], runs: Sequence[RunView], place: str
) -> Figure:
    singles: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for run in runs:
        draw = f", draw {run.record.draw}" if run.record.draw else ""
        singles[run.record.method].append((f"seed {run.record.seed}{draw}", 100 * run.record.dev))
    drawn = [
        bars.ScoreRow(
            row.method,
            tuple(singles[row.method]),
            row.dev.mean,
            row.dev.low,
            row.dev.high,
            row.method == SUBJECT,
        )
        for row in rows
    ]
    record = runs[0].record
    shares = {run.record.majority for run in runs}
    share = shares.pop() if len(shares) == 1 and record.metric == "accuracy" else None
    svg = bars.draw_scores(
        drawn,
        x_title=f"dev {record.metric}, points",
        majority=None if share is None else 100 * share,
        label=f"Dev {record.metric} on {task}: "
        + "; ".join(f"{row.name} {row.mean:.2f}" for row in drawn),
    )
    return Figure(slug("scores", task, place), task, svg)


def _heads(task: str, runs: Sequence[RunView], place: str) -> Figures | None:
    by_method = group(
        (run for run in runs if run.record.method not in CONTROLS), lambda run: run.record.method
    )
    caption = (
        f"{task}: in how many runs each head was removed; the stronger the colour, the more often."
    )
    return figures(
        caption, [_shares(task, method, by_method[method], place) for method in _ordered(by_method)]
    )


def _ordered(methods: Iterable[str]) -> list[str]:
    """In the order of the tables, those they do not name behind."""
    return sorted(
        methods, key=lambda name: (METHODS.index(name) if name in METHODS else len(METHODS), name)
    )


def _shares(task: str, method: str, runs: Sequence[RunView], place: str) -> Figure | None:
    sizes = {(run.record.layers, run.record.heads) for run in runs}
    if len(sizes) > 1:
        return None  # heads of models of different sizes are different heads
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for run in runs:
        for layer, heads in run.plan.items():
            counts[layer].update(heads)
    ((num_layers, num_heads),) = sizes
    words = f"{method}, {count(len(runs), 'run')}"
    svg = maps.draw_shares(
        counts,
        len(runs),
        num_layers,
        num_heads,
        label=f"{task}, {words}: how often heads were removed",
    )
    return Figure(slug("heads", task, method, place), words, svg)


def _searches(by_task: Mapping[str, Sequence[RunView]], place: str) -> Figures | None:
    found = []
    for task, runs in by_task.items():
        for method, of_method in group(runs, lambda run: run.record.method).items():
            curves = [
                (f"seed {run.record.seed}, layer {each.layer}", each.curve, each.scored)
                for run in of_method
                for each in layer_curves(run)
            ]
            if curves:
                label = f"{task}, {method}: best gain in reward against the masks scored, {len(curves)} searches"
                name = slug("search", task, method, place)
                found.append(
                    Figure(name, f"{task}, {method}", lines.draw_together(curves, label=label))
                )
    begun = begun_from(run for runs in by_task.values() for run in runs)
    caption = (
        f"The best reward found against the different masks scored, in points over {begun} on the reward set. The reward is not "
        "the dev score: what gains here may lose there."
    )
    return figures(caption, found)


def _times(by_task: Mapping[str, Sequence[RunView]], place: str) -> Figures | None:
    found = []
    for task, runs in by_task.items():
        by_method = group(runs, lambda run: run.record.method)
        rows = []
        for method in _ordered(by_method):
            split = [time_parts(run.record) for run in by_method[method]]
            rows.append(
                (method, {part: fmean(each[part] for each in split) for part in bars.PARTS})
            )
        label = f"{task}, mean seconds: " + "; ".join(
            f"{name} {sum(parts.values()):.0f}" for name, parts in rows
        )
        found.append(Figure(slug("time", task, place), task, bars.draw_times(rows, label=label)))
    return figures("Where the seconds of a run went, mean over the runs of each method.", found)


def _runs_grid(runs: Sequence[RunView]) -> Grid:
    rows = [
        (
            f"{run.record.task}, {run.record.method}, seed {run.record.seed}"
            + (f", draw {run.record.draw}" if run.record.draw else ""),
            run.record.model,
            run.record.protocol,
            f"{100 * run.record.dev:.2f}",
            f"{100 * run.record.train:.2f}",
            f"{run.record.removed} of {run.record.layers * run.record.heads}",
            f"{run.record.seconds:.1f}",
            run.label,
        )
        for run in runs
    ]
    texts = ("run", "model", "protocol", "folder")
    titles = ("run", "model", "protocol", "dev", "train", "removed", "seconds", "folder")
    columns = tuple(Heading(title, title in texts) for title in titles)
    notes = ("A run's own page, with its search layer by layer: auber report FOLDER.",)
    return Grid(count(len(rows), "finished run"), columns, tuple(rows), notes, folded=True)


def _left_out(report: Report) -> Grid | None:
    if not report.left_out:
        return None
    rows = tuple((run.folder, run.reason) for run in report.left_out)
    return Grid("Runs without a result, in no number here", (Heading("run"), Heading("why")), rows)


def _origins(study: StudyView) -> list[Grid | Words]:
    found: list[Grid | Words] = []
    notes = tuple(
        dict.fromkeys(f"Note: {note}" for source in study.sources for note in source.notes)
    )
    if notes:
        found.append(Words(notes))
    records = [record for source in study.sources for record in source.records]
    rows = tuple(
        (*origin, str(len(of_origin)), f"{sum(record.seconds for record in of_origin):.0f}")
        for origin, of_origin in by_origin(records)
    )
    columns = (
        *map(Heading, ("command", "commit", "device")),
        Heading("runs and starts", is_text=False),
        Heading("seconds", is_text=False),
    )
    found.append(Grid("Where the numbers come from", columns, rows, tuple(versions_of(records))))
    return found
