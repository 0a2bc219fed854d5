"""The tables of a report: the paper's three, then comparisons, overfitting and costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from auber.metrics.statistics import FEWEST_PAIRS, LEVEL, Comparison, Summary, verdict
from auber.report.analysis import MethodRow, PooledRow, Report, Section
from auber.report.analysis import PAIRS
from auber.report.answer import gap_verdict
from auber.report.records import CONTROL, SUBJECT
from auber.report.published import MODEL as PUBLISHED_MODEL
from auber.report.runs import Coverage
from auber.report.tables import Part, Table, Value

RULE = (
    f"A difference of {FEWEST_PAIRS} or more pairs is significant if its 95 % t interval "
    "excludes 0 "
    f"and its p, corrected by Holm's method, is below {LEVEL}. The p is that of the exact "
    "sign-flip "
    "test if there are enough pairs for it to get that low, else that of the paired t test."
)

_PLACE = ("model", "protocol")
_COMPARISON = (
    "difference", "difference interval low", "difference interval high", "p", "p of", "corrected p",
    "smallest exact p", "comparisons", "detectable",
)  # fmt: skip
# What pages show of a comparison, and what only data files have.
_PAGE = ("difference", "difference interval", "corrected p", "detectable")
_DATA = ("p", "p of", "smallest exact p", "comparisons")


def all_tables(report: Report) -> tuple[Table, ...]:
    """Return every table of a report in the order of reading."""
    tables = (
        _tasks(report), _methods(report), _ablations(report), _comparisons(report),
        _overfitting(report), _costs(report),
    )  # fmt: skip
    notes = tuple(_left_out(report))
    return tuple(replace(table, notes=(*table.notes, *notes)) for table in tables)


def summarise(report: Report) -> dict[str, Any]:
    """Return the report as plain JSON, each comparison with its verdict."""

    def of_method(row: MethodRow) -> dict[str, Any]:
        return {**asdict(row), "verdict": row.comparison and verdict(row.comparison)}

    def of_pairs(row: PooledRow) -> dict[str, Any]:
        return {**asdict(row), "verdict": verdict(row.comparison, counted=PAIRS)}

    sections = [
        {
            "model": section.model,
            "protocol": section.protocol,
            "coverage": section.coverage and asdict(section.coverage),
            "methods": list(map(of_method, section.methods)),
            "ablations": list(map(of_method, section.ablations)),
            "pooled": list(map(of_pairs, section.pooled)),
            "learned": list(map(of_pairs, section.learned)),
            "gaps": [
                {**asdict(row), "verdict": gap_verdict(row.comparison)} for row in section.gaps
            ],
            "notes": list(section.notes),
        }
        for section in report.sections
    ]
    return {
        "runs": report.runs,
        "starts": report.starts,
        "left_out": [run.to_json() for run in report.left_out],
        "tasks": [asdict(row) for row in report.tasks],
        "sections": sections,
    }


def _left_out(report: Report) -> Iterable[str]:
    if report.left_out:
        number = len(report.left_out)
        runs = (
            "1 run has no result and is" if number == 1 else f"{number} runs have no result and are"
        )
        names = "; ".join(f"{run.folder} ({run.reason})" for run in report.left_out)
        yield f"{runs} in no number here: {names}."


def _tasks(report: Report) -> Table:
    columns = (
        "task", "metric", "classes", "train rows", "dev rows", "dev majority class low",
        "dev majority class high",
    )  # fmt: skip
    rows = tuple(
        (
            row.task,
            row.metric,
            row.labels,
            row.train_rows,
            row.dev_rows,
            *(row.majority or (None, None)),
        )
        for row in report.tasks
    )
    note = (
        "Dev majority class: the share of the most frequent class in %, which is the accuracy of "
        "always giving it."
    )
    return Table("table1", "Table 1: the tasks", columns, rows, notes=(note,))


def _methods(report: Report) -> Table:
    found = [(section, section.methods, section.methods_coverage) for section in report.sections]
    table = _method_table("table2", "Table 2: the methods", CONTROL, found)
    return replace(table, empty="No run of a method other than ablations.")


def _ablations(report: Report) -> Table:
    found = [
        (section, section.ablations, section.ablations_coverage) for section in report.sections
    ]
    table = _method_table("table3", f"Table 3: {SUBJECT} and its ablations", SUBJECT, found)
    return replace(table, empty="No run of an ablation.")


def _method_table(
    name: str,
    title: str,
    reference: str,
    found: Sequence[tuple[Section, tuple[MethodRow, ...], Coverage | None]],
) -> Table:
    legend = (
        "Scores are in points (the metric times 100), mean ± sample deviation over the seeds, with "
        "the 95 % t interval of the mean. P: removed heads. Gap: train minus dev. The "
        "verdict is on "
        f"the paired differences to {reference}, p corrected for the comparisons of the "
        f"task. {RULE} "
        "One run proves nothing.",
        f"Columns named published are the paper's numbers for {PUBLISHED_MODEL}, of an unstated "
        "number of runs: not measured here, and in none of the other columns.",
    )
    columns = (
        *_PLACE, "task", "method", "seeds", "P", "P deviation", "dev", "dev deviation",
        "dev interval low", "dev interval high", "train", "train deviation", "gap",
        "gap deviation", *_COMPARISON, f"against {reference}", "careful", "published P",
        "published dev",
    )  # fmt: skip
    return Table(
        name,
        title,
        columns,
        rows=tuple(_method_row(section, row) for section, rows, _ in found for row in rows),
        hidden=(*_PAGE, *_DATA),
        wide=("dev interval", "train", "careful", "published P", "published dev"),
        parts={(s.model, s.protocol): _part(s, coverage, rows) for s, rows, coverage in found},
        notes=legend,
    )


def _method_row(section: Section, row: MethodRow) -> tuple[Value, ...]:
    words = None
    if row.comparison is not None:
        words = verdict(row.comparison)
    elif row.reference is not None:
        words = f"not compared: no run of {row.reference} with the same seed"
    published = row.published
    return (
        section.model,
        section.protocol,
        row.task,
        row.method,
        len(row.seeds),
        *(row.removed.mean, row.removed.deviation),
        *(row.dev.mean, row.dev.deviation, row.dev.low, row.dev.high),
        *(row.train.mean, row.train.deviation),
        *(row.gap.mean, row.gap.deviation),
        *_comparison(row.comparison),
        words,
        "; ".join(row.flags),
        *((published.removed, published.score) if published else (None, None)),
    )


def _comparisons(report: Report) -> Table:
    legend = (
        "All pairs of a task and a seed that both methods have are pooled; differences are "
        "in points. "
        "p is corrected together for the competitors and together for the ablations. Rows of "
        f"learned tasks leave out those on which {CONTROL} is no better than always giving "
        "the most "
        "frequent answer; there p is corrected together for the competitors, and the comparison "
        f"with {CONTROL} stands alone. {RULE} Detectable: the difference that so many pairs detect "
        "with a power of 80 % in one uncorrected t test, if the observed deviation is the true one."
    )
    rows = []
    for section in report.sections:
        whole = {row.reference: row.tasks for row in section.pooled}
        found = [(row, "") for row in section.pooled]
        found += [
            (row, "learned: ") for row in section.learned if row.tasks != whole[row.reference]
        ]
        for row, label in found:
            words = verdict(row.comparison, counted=PAIRS)
            tasks = label + ", ".join(row.tasks)
            comparison = _comparison(row.comparison)
            facts = (row.method, row.reference, tasks, row.comparison.paired.differences.n)
            rows.append((section.model, section.protocol, *facts, *comparison, words))
    return Table(
        "comparisons",
        f"{SUBJECT} against each other method",
        (*_PLACE, "method", "against", "tasks", "pairs", *_COMPARISON, "verdict"),
        tuple(rows),
        hidden=_DATA,
        wide=_PAGE,
        parts=_parts(report),
        notes=(legend,),
        empty=f"No run of {SUBJECT} has a run of another method of the same task and seed.",
    )


def _overfitting(report: Report) -> Table:
    legend = (
        "Gap: train minus dev in points, mean over all pairs of a task and a seed that both "
        "methods "
        "have. A gap shrinks if dev rises or if train falls; the two differences "
        "distinguish these. "
        f"p is corrected together for all methods. {RULE}"
    )
    columns = (
        *_PLACE, "method", "against", "tasks", "pairs", "gap", f"gap of {CONTROL}",
        "train difference", "dev difference", *(f"gap {name}" for name in _COMPARISON), "verdict",
    )  # fmt: skip
    rows = tuple(
        (
            section.model,
            section.protocol,
            row.method,
            row.reference,
            ", ".join(row.tasks),
            row.comparison.paired.differences.n,
            *(row.gap, row.reference_gap, row.train, row.dev),
            *_comparison(row.comparison),
            gap_verdict(row.comparison),
        )
        for section in report.sections
        for row in section.gaps
    )
    return Table(
        "overfitting",
        f"Overfitting, against {CONTROL}",
        columns,
        rows,
        hidden=tuple(f"gap {name}" for name in _DATA),
        wide=("tasks", *(f"gap {name}" for name in _PAGE)),
        parts=_parts(report),
        notes=(legend,),
        empty=f"No run has a run of {CONTROL} of the same task and seed.",
    )


def _costs(report: Report) -> Table:
    columns = (
        *_PLACE, "task", "method", "seeds", "rewards asked", "rewards computed", "tuning steps",
        "fold model steps", "seconds",
    )  # fmt: skip
    rows = tuple(
        (
            section.model,
            section.protocol,
            row.task,
            row.method,
            len(row.seeds),
            *(row.cost.rewards_asked, row.cost.rewards_computed),
            *(row.cost.tuning_steps, row.cost.scout_steps, row.cost.seconds),
        )
        for section in report.sections
        for row in section.rows
    )
    legend = (
        "Means of a run. A run includes a first tuning of its own, but not a start that "
        "several runs "
        "share. Fold models are tuned to score the rows that they were not trained on (protocol "
        "crossfit); tuning steps are those of the pruned model alone."
    )
    parts = {place: part._replace(notes=()) for place, part in _parts(report).items()}
    return Table("costs", "Cost of a run", columns, rows, parts=parts, notes=(legend,))


def _parts(report: Report) -> dict[tuple[str, str], Part]:
    return {(each.model, each.protocol): _part(each, each.coverage) for each in report.sections}


def _part(section: Section, coverage: Coverage | None, rows: tuple[MethodRow, ...] = ()) -> Part:
    """Return the label and notes of a section; some tables have published numbers."""
    notes = section.notes
    if coverage is not None and coverage.missing:
        notes = (f"Missing so far: {'; '.join(coverage.missing)}.", *notes)
    if any(row.published for row in rows) and section.model.rpartition("/")[2] != PUBLISHED_MODEL:
        notes = (*notes, f"Published: another model ({PUBLISHED_MODEL}, here {section.model}).")
    return Part(None if coverage is None else coverage.label, notes)


def _comparison(comparison: Comparison | None) -> tuple[Value, ...]:
    if comparison is None:
        return (None,) * len(_COMPARISON)
    found = comparison.paired
    differences: Summary = found.differences
    return (
        differences.mean,
        differences.low,
        differences.high,
        comparison.p,
        "sign flips" if comparison.exact else "t",
        comparison.corrected,
        found.smallest_p,
        comparison.family,
        found.detectable,
    )
