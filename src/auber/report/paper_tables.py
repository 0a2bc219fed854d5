"""The tables of a report: the paper's three, then comparisons, overfitting and costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from operator import attrgetter
from typing import Any

import pandas as pd

from auber.metrics.statistics import FEWEST_PAIRS, LEVEL
from auber.report.analysis import MethodRow, PooledRow, Report, Section
from auber.report.published import MODEL as PUBLISHED_MODEL
from auber.report.records import CONTROL, SUBJECT
from auber.report.tables import Part, Table, Value

RULE = (
    f"A difference of {FEWEST_PAIRS} or more pairs is significant if its 95 % t interval "
    f"excludes 0 and its p, corrected by Holm's method, is below {LEVEL}. The p is that of the "
    "exact sign-flip test if there are enough pairs for it to get that low, else that of the "
    "paired t test."
)

# The columns of a table: an attribute of its rows, or a function of a row.
Columns = Mapping[str, str | Callable[[Any], Value]]

_COMPARISON: Columns = {
    "difference": "comparison.paired.differences.mean",
    "difference interval low": "comparison.paired.differences.low",
    "difference interval high": "comparison.paired.differences.high",
    "p": "comparison.p",
    "p of": lambda row: row.comparison and ("sign flips" if row.comparison.exact else "t"),
    "corrected p": "comparison.corrected",
    "smallest exact p": "comparison.paired.smallest_p",
    "comparisons": "comparison.family",
    "detectable": "comparison.paired.detectable",
}
# What pages show of a comparison, and what only data files have.
_PAGE = ("difference", "difference interval", "corrected p", "detectable")
_DATA = ("p", "p of", "smallest exact p", "comparisons")

_PAIRS: Columns = {
    "method": "method",
    "against": "reference",
    "tasks": lambda row: ", ".join(row.tasks),
    "pairs": "pairs",
}


def all_tables(report: Report) -> tuple[Table, ...]:
    """Return every table of a report in the order of reading."""
    tables = (
        _tasks(report),
        _method_table(report, "table2"),
        _method_table(report, "table3"),
        _comparisons(report),
        _overfitting(report),
        _costs(report),
    )
    if not report.left_out:
        return tables
    number = len(report.left_out)
    runs = "1 run has no result and is" if number == 1 else f"{number} runs have no result and are"
    names = "; ".join(f"{run.folder} ({run.reason})" for run in report.left_out)
    note = f"{runs} in no number here: {names}."
    return tuple(replace(table, notes=(*table.notes, note)) for table in tables)


def summarise(report: Report) -> dict[str, Any]:
    """Return the report as plain JSON, each comparison with its verdict."""

    def rows(found: Iterable[MethodRow | PooledRow]) -> list[dict[str, Any]]:
        return [{**asdict(row), "verdict": row.verdict} for row in found]

    sections = [
        {
            "model": section.model,
            "protocol": section.protocol,
            "coverage": section.coverage and asdict(section.coverage),
            "methods": rows(section.methods),
            "ablations": rows(section.ablations),
            "pooled": rows(section.pooled),
            "learned": rows(section.learned),
            "gaps": rows(section.gaps),
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


def _make(
    report: Report,
    name: str,
    title: str,
    columns: Columns,
    rows: Callable[[Section], Iterable[MethodRow | PooledRow]],
    **options: Any,
) -> Table:
    """Return a table with the rows of each section."""
    values = [
        (section.model, section.protocol, *(_value(row, column) for column in columns.values()))
        for section in report.sections
        for row in rows(section)
    ]
    data = pd.DataFrame(values, columns=["model", "protocol", *columns], dtype=object)
    parts = {}
    for each in report.sections:
        missing = (f"Missing so far: {'; '.join(each.missing)}.",) if each.missing else ()
        parts[each.model, each.protocol] = Part(each.label, (*missing, *each.notes))
    return Table(name, title, data, parts=parts, **options)


def _value(row: Any, column: str | Callable[[Any], Value]) -> Value:
    if callable(column):
        return column(row)
    for name in column.split("."):
        row = None if row is None else getattr(row, name)
    value: Value = row
    return value


def _tasks(report: Report) -> Table:
    columns = [
        *("task", "metric", "classes", "train rows", "dev rows"),
        *("dev majority class low", "dev majority class high"),
    ]
    rows = [
        (*tuple(asdict(row).values())[:-1], *(row.majority or (None, None))) for row in report.tasks
    ]
    note = (
        "Dev majority class: the share of the most frequent class in %, which is the accuracy of "
        "always giving it."
    )
    data = pd.DataFrame(rows, columns=columns, dtype=object)
    return Table("table1", "Table 1: the tasks", data, notes=(note,))


def _method_table(report: Report, name: str) -> Table:
    title, reference, empty = {
        "table2": (
            "Table 2: the methods",
            CONTROL,
            "No run of a method other than ablations.",
        ),
        "table3": (
            f"Table 3: {SUBJECT} and its ablations",
            SUBJECT,
            "No run of an ablation.",
        ),
    }[name]
    legend = (
        "Scores are in points (the metric times 100), mean ± sample deviation over the seeds, with "
        "the 95 % t interval of the mean. P: removed heads. Gap: train minus dev. The verdict is "
        f"on the paired differences to {reference}, p corrected for the comparisons of the task. "
        "One run proves nothing."
    )
    on_published = (
        f"Columns named published are the paper's numbers for {PUBLISHED_MODEL}, of an unstated "
        "number of runs: not measured here, and in none of the other columns."
    )
    columns: Columns = {
        "task": "task", "method": "method", "seeds": "dev.n",
        "P": "removed.mean", "P deviation": "removed.deviation",
        "dev": "dev.mean", "dev deviation": "dev.deviation",
        "dev interval low": "dev.low", "dev interval high": "dev.high",
        "train": "train.mean", "train deviation": "train.deviation",
        "gap": "gap.mean", "gap deviation": "gap.deviation",
        **_COMPARISON,
        f"against {reference}": _against,
        "careful": lambda row: "; ".join(row.flags),
        "published P": "published.removed", "published dev": "published.score",
    }  # fmt: skip
    return _make(
        report,
        name,
        title,
        columns,
        attrgetter("methods" if name == "table2" else "ablations"),
        hidden=(*_PAGE, *_DATA),
        brief=("task", "method", "P", "dev", "difference interval", "corrected p"),
        notes=(legend, RULE, on_published),
        empty=empty,
    )


def _against(row: MethodRow) -> str | None:
    if row.comparison is None and row.reference is not None:
        return f"not compared: no run of {row.reference} with the same seed"
    return row.verdict


def _comparisons(report: Report) -> Table:
    legend = (
        "All pairs of a task and a seed that both methods have are pooled; differences are in "
        "points. p is corrected together for the competitors and together for the ablations. Rows "
        f"of learned tasks leave out those on which {CONTROL} is no better than always giving the "
        "most frequent answer; there p is corrected together for the competitors, and the "
        f"comparison with {CONTROL} stands alone. Detectable: the difference that this number of "
        "pairs detects with a power of 80 % in one uncorrected t test, if the observed deviation "
        "is the true one."
    )

    def rows(section: Section) -> Iterable[PooledRow]:
        yield from section.pooled
        whole = {row.reference: row.tasks for row in section.pooled}
        for row in section.learned:
            if row.tasks != whole[row.reference]:
                yield replace(row, tasks=(f"learned: {row.tasks[0]}", *row.tasks[1:]))

    return _make(
        report,
        "comparisons",
        f"{SUBJECT} against each other method",
        {**_PAIRS, **_COMPARISON, "verdict": "verdict"},
        rows,
        hidden=_DATA,
        notes=(legend, RULE),
        empty=f"No run of {SUBJECT} has a run of another method of the same task and seed.",
    )


def _overfitting(report: Report) -> Table:
    legend = (
        "Gap: train minus dev in points, mean over all pairs of a task and a seed that both "
        "methods have. A gap shrinks if dev rises or if train falls; the two differences "
        "distinguish these. p is corrected together for all methods."
    )
    columns: Columns = {
        **_PAIRS,
        "gap": "gap",
        f"gap of {CONTROL}": "reference_gap",
        "train difference": "train",
        "dev difference": "dev",
        **{f"gap {name}": column for name, column in _COMPARISON.items()},
        "verdict": "verdict",
    }
    return _make(
        report,
        "overfitting",
        f"Overfitting, against {CONTROL}",
        columns,
        attrgetter("gaps"),
        hidden=tuple(f"gap {name}" for name in _DATA),
        notes=(legend, RULE),
        empty=f"No run has a run of {CONTROL} of the same task and seed.",
    )


def _costs(report: Report) -> Table:
    legend = (
        "Means of a run. A run includes a first tuning of its own, but not a start that several "
        "runs share. Fold models are tuned to score the rows that they were not trained on "
        "(protocol crossfit); tuning steps are those of the pruned model alone."
    )
    columns: Columns = {
        "task": "task",
        "method": "method",
        "seeds": "dev.n",
        "rewards asked": "cost.rewards_asked",
        "rewards computed": "cost.rewards_computed",
        "tuning steps": "cost.tuning_steps",
        "fold model steps": "cost.scout_steps",
        "seconds": "cost.seconds",
    }
    rows = attrgetter("rows")
    return _make(report, "costs", "Cost of a run", columns, rows, notes=(legend,))
