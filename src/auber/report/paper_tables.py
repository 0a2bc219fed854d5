"""The tables of a report: the paper's three, then comparisons, overfitting and costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from auber.metrics.statistics import FEWEST_PAIRS, LEVEL
from auber.report.analysis import COSTS, Report, Row, Section
from auber.report.records import CONTROL, SUBJECT, count
from auber.report.tables import SectionNotes, Table

RULE = (
    f"A difference of {FEWEST_PAIRS} or more pairs is significant if its 95 % t interval "
    f"excludes 0 and its p, corrected by Holm's method, is below {LEVEL}. The p is that of the "
    "exact sign-flip test if there are enough pairs for it to get that low, else that of the "
    "paired t test. Intervals are clipped to the range of the metric."
)
_SCORES = (
    "Scores are in points (the metric times 100), mean ± sample deviation over the seeds, with the "
    "95 % t interval of the mean. P: removed heads. Gap: train minus dev. The verdict is on the "
    f"paired differences to {CONTROL} (table 3: to {SUBJECT}), p corrected for the comparisons of "
    "the task. One run proves nothing."
)
_PUBLISHED = (
    "Columns named published are the paper's numbers for bert-base-cased, of an unstated number "
    "of runs: not measured here, and in none of the other columns."
)
_COMPARISONS = (
    "All pairs of a task and a seed that both methods have are pooled; differences are in points. "
    "p is corrected together for the competitors and together for the ablations. Rows of learned "
    f"tasks leave out those on which {CONTROL} is no better than always giving the most frequent "
    "answer; there p is corrected together for the competitors, and the comparison with "
    f"{CONTROL} stands alone. Detectable: the difference that this number of pairs detects with a "
    "power of 80 % in one uncorrected t test, if the observed deviation is the true one."
)
_OVERFITTING = (
    "Gap: train minus dev in points, mean over all pairs of a task and a seed that both methods "
    "have. A gap shrinks if dev rises or if train falls; the two differences distinguish these. p "
    "is corrected together for all methods."
)
_COSTS = (
    "Means of a run. A run includes a first tuning of its own, but not a start that several runs "
    "share. Fold models are tuned to score the rows that they were not trained on (protocol "
    "crossfit); tuning steps are those of the pruned model alone."
)
_TASKS = (
    "Dev majority class: the share of the most frequent class in %, which is the accuracy of "
    "always giving it."
)

# What the paper published for bert-base-cased, by method: dev scores in points, and removed heads.
# It does not state the number of runs; some scores (MRPC 83.97, WNLI 43.07) are of several.
_PUBLISHED_TASKS = ("mrpc", "cola", "rte", "wnli")
_NOT_GIVEN = (None,) * 4
_PUBLISHED_SCORES: dict[str, tuple[tuple[float, ...], tuple[int | None, ...]]] = {
    "original": ((84.07, 57.01, 63.54, 46.48), _NOT_GIVEN),
    "auber": ((86.03, 61.28, 66.43, 56.34), (20, 53, 87, 86)),
    "random": ((83.97, 57.89, 63.47, 43.07), _NOT_GIVEN),
    "confidence": ((83.33, 55.74, 64.26, 56.34), _NOT_GIVEN),
    "michel": ((83.09, 54.73, 63.18, 54.93), _NOT_GIVEN),
    "voita": ((84.17, 57.24, 63.61, 56.34), _NOT_GIVEN),
    "auber-query": ((83.33, 55.52, 65.34, 56.34), (27, 72, 83, 96)),
    "auber-key": ((84.56, 55.78, 63.18, 56.34), (42, 55, 86, 101)),
    "auber-l2": ((83.33, 54.85, 66.43, 53.52), (33, 63, 61, 94)),
    "auber-reverse": ((86.52, 59.48, 64.62, 54.93), (58, 57, 99, 101)),
}

# The columns of a comparison. Pages leave some to the data files.
_DIFFERENCE = (
    *("difference", "difference interval low", "difference interval high", "p", "p of"),
    *("corrected p", "smallest exact p", "comparisons", "detectable"),
)
_DATA = ("p", "p of", "smallest exact p", "comparisons")
_PAGE = ("difference", "difference interval", "corrected p", "detectable")
_PAIRS = ("method", "against", "tasks", "pairs")
_METHODS = (
    *("task", "method", "seeds", "P", "P deviation", "dev", "dev deviation"),
    *("dev interval low", "dev interval high", "train", "train deviation", "gap", "gap deviation"),
    *_DIFFERENCE,
)
_PARTS_OF_GAPS = ("gap", f"gap of {CONTROL}", "train difference", "dev difference")
_BRIEF = ("task", "method", "P", "dev", "difference interval", "corrected p")


def all_tables(report: Report) -> tuple[Table, ...]:
    """Return every table of a report in the order of reading."""
    tasks = pd.DataFrame(report.tasks, dtype=object)
    tables = (
        Table("table1", "Table 1: the tasks", tasks, notes=(_TASKS,)),
        _compare_methods(
            report,
            "table2",
            "Table 2: the methods",
            CONTROL,
            lambda section: section.methods,
            "No run of a method other than ablations.",
        ),
        _compare_methods(
            report,
            "table3",
            f"Table 3: {SUBJECT} and its ablations",
            SUBJECT,
            lambda section: section.ablations,
            "No run of an ablation.",
        ),
        _make_table(
            report,
            "comparisons",
            "Comparison with each other method",
            _pooled,
            (*_PAIRS, *_DIFFERENCE, "verdict"),
            notes=(_COMPARISONS, RULE),
            hidden=_DATA,
            brief=("against", "tasks", "pairs", "difference interval", "corrected p"),
            empty="No run has a run of another method of the same task and seed.",
        ),
        _make_table(
            report,
            "overfitting",
            f"Overfitting, against {CONTROL}",
            _gaps,
            (*_PAIRS, *_PARTS_OF_GAPS, *(f"gap {name}" for name in _DIFFERENCE), "verdict"),
            notes=(_OVERFITTING, RULE),
            hidden=tuple(f"gap {name}" for name in _DATA),
            empty=f"No run has a run of {CONTROL} of the same task and seed.",
        ),
        _make_table(
            report,
            "costs",
            "Cost of a run",
            lambda section: section.rows,
            ("task", "method", "seeds", *COSTS),
            notes=(_COSTS,),
        ),
    )
    if not report.left_out:
        return tables
    names = "; ".join(f"{run.folder} ({run.reason})" for run in report.left_out)
    number = len(report.left_out)
    has = "has no result and is" if number == 1 else "have no result and are"
    left_out = f"{count(number, 'run')} {has} in no number here: {names}."
    return tuple(replace(table, notes=(*table.notes, left_out)) for table in tables)


def _make_table(
    report: Report,
    name: str,
    title: str,
    rows: Callable[[Section], Iterable[Row]],
    columns: Sequence[str],
    **options: Any,
) -> Table:
    """Return a table of the rows of all sections; `options` are fields of `Table`."""
    titles = ["model", "protocol", *columns]
    # Lists, because from rows that lack a column pandas would make numbers that are no number.
    data = [
        [section.model, section.protocol, *(row.get(title) for title in columns)]
        for section in report.sections
        for row in rows(section)
    ]
    parts = {}
    for each in report.sections:
        missing = (f"Missing so far: {'; '.join(each.missing)}.",) if each.missing else ()
        notes = (*missing, *each.notes)
        parts[each.model, each.protocol] = SectionNotes(each.name, each.label, notes)
    frame = pd.DataFrame(data, columns=titles, dtype=object)
    return Table(name, title, frame, parts=parts, **options)


def _compare_methods(
    report: Report,
    name: str,
    title: str,
    reference: str,
    rows: Callable[[Section], Iterable[Row]],
    empty: str,
) -> Table:
    """Return a table of methods, each with its verdict against a reference."""
    against = f"against {reference}"

    def judged(section: Section) -> Iterable[Row]:
        for row in rows(section):
            score, removed = published(row["task"], row["method"])
            words = {against: row["verdict"], "warnings": "; ".join(row["flags"])}
            yield {**row, **words, "published P": removed, "published dev": score}

    return _make_table(
        report,
        name,
        title,
        judged,
        (*_METHODS, against, "warnings", "published P", "published dev"),
        notes=(_SCORES, RULE, _PUBLISHED),
        hidden=(*_PAGE, *_DATA),
        brief=_BRIEF,
        empty=empty,
    )


def _pooled(section: Section) -> Iterable[Row]:
    """Yield the comparisons on all tasks, then those on fewer because some are not learned."""
    yield from ({**row, "tasks": ", ".join(row["tasks"])} for row in section.pooled)
    whole = {row["against"]: row["tasks"] for row in section.pooled}
    for row in section.learned:
        if row["tasks"] != whole[row["against"]]:
            yield {**row, "tasks": f"learned: {', '.join(row['tasks'])}"}


def _gaps(section: Section) -> Iterable[Row]:
    for row in section.gaps:
        differences = {f"gap {name}": row[name] for name in _DIFFERENCE}
        yield {**row, **differences, "tasks": ", ".join(row["tasks"])}


def published(task: str, method: str) -> tuple[float | None, int | None]:
    """Return the paper's score in points and number of removed heads, if it gives them."""
    if task not in _PUBLISHED_TASKS or method not in _PUBLISHED_SCORES:
        return None, None
    place = _PUBLISHED_TASKS.index(task)
    scores, removed = _PUBLISHED_SCORES[method]
    return scores[place], removed[place]
