"""Every table of a report, made from the rows of the analysis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from auber.metrics.statistics import FEWEST_PAIRS, LEVEL, Comparison, Summary, verdict
from auber.report import published
from auber.report.analysis import GapRow, MethodRow, PooledRow, Report, Section
from auber.report.columns import Column, Detail, Table, TableSection, Value
from auber.report.coverage import Coverage
from auber.report.roles import CONTROL, SUBJECT


def all_tables(report: Report) -> tuple[Table, ...]:
    """Every table of a report, in the order of reading."""
    notes = tuple(_completeness(report))
    return (
        tasks_table(report, notes),
        methods_table(report, notes),
        ablations_table(report, notes),
        comparisons_table(report, notes),
        overfitting_table(report, notes),
        costs_table(report, notes),
    )


def tasks_table(report: Report, notes: tuple[str, ...]) -> Table:
    """Table 1: the tasks."""
    columns = (
        Column("task"),
        Column("metric"),
        Column("classes", "number"),
        Column("train rows", "number"),
        Column("dev rows", "number"),
        Column("dev majority class", "range", 2),
    )
    rows = tuple(
        (row.task, row.metric, row.labels, row.train_rows, row.dev_rows, row.majority)
        for row in report.tasks
    )
    share = "Dev majority class: the share, in %, of the most frequent class; always answering it has this accuracy."
    return Table(
        "table1", "Table 1: the tasks", columns, (TableSection(None, None, rows),), (share, *notes)
    )


def methods_table(report: Report, notes: tuple[str, ...]) -> Table:
    """Table 2: every method on every task, against the control."""
    sections = [
        _section(
            section, map(_method_values, section.methods), section.methods_coverage, section.methods
        )
        for section in report.sections
        if section.methods
    ]
    return Table(
        "table2",
        "Table 2: the methods",
        _method_columns(CONTROL),
        tuple(sections),
        (*_legend(CONTROL), *notes),
        empty="No run of a method but ablations.",
    )


def ablations_table(report: Report, notes: tuple[str, ...]) -> Table:
    """Table 3: the method and its ablations, against the method."""
    sections = [
        _section(
            section,
            map(_method_values, section.ablations),
            section.ablations_coverage,
            section.ablations,
        )
        for section in report.sections
        if section.ablations
    ]
    return Table(
        "table3",
        f"Table 3: {SUBJECT} and its ablations",
        _method_columns(SUBJECT),
        tuple(sections),
        (*_legend(SUBJECT), *notes),
        empty="No run of an ablation.",
    )


def comparisons_table(report: Report, notes: tuple[str, ...]) -> Table:
    """The subject against every other method over all pairs of task and seed, and over those of the tasks that the control has learned."""
    columns = (
        Column("method"),
        Column("against"),
        Column("tasks"),
        Column("pairs", "number"),
        *_comparison_columns(Detail.PAGE),
        Column("verdict", "sentence"),
    )
    sections = [
        _section(section, _pooled_and_learned(section), section.coverage)
        for section in report.sections
        if section.pooled
    ]
    legend = (
        "All pairs of a task and a seed that both methods have are pooled, each counting once; differences are in points. "
        f"p is corrected together for the competitors and together for the ablations. Rows of learned tasks leave out "
        f"those on which {CONTROL} is no better than always giving the most frequent answer; there p is corrected together for the competitors, "
        f"and {CONTROL} stands alone. {RULE} Detectable: the difference such "
        "a number of pairs finds with 80 % power in one uncorrected t test, were the observed deviation the true one."
    )
    return Table(
        "comparisons",
        f"{SUBJECT} against each other method",
        columns,
        tuple(sections),
        (legend, *notes),
        empty=f"No run of {SUBJECT} has a run of another method beside it.",
    )


def overfitting_table(report: Report, notes: tuple[str, ...]) -> Table:
    """Train minus dev of every method against the control's over all pairs of task and seed."""
    columns = (
        Column("method"),
        Column("against"),
        Column("tasks", "sentence", detail=Detail.PAGE),
        Column("pairs", "number"),
        Column("gap", "number", 2, signed=True),
        Column(f"gap of {CONTROL}", "number", 2, signed=True),
        Column("train difference", "number", 2, signed=True),
        Column("dev difference", "number", 2, signed=True),
        *(
            replace(column, title=f"gap {column.title}")
            for column in _comparison_columns(Detail.PAGE)
        ),
        Column("verdict", "sentence"),
    )
    sections = [
        _section(section, map(_gap_values, section.gaps), section.coverage)
        for section in report.sections
        if section.gaps
    ]
    legend = (
        "Gap: train minus dev, in points, mean over all pairs of a task and a seed that both methods have. A gap is smaller where dev "
        "rose or where train fell: the two differences tell which. p is corrected together for all methods. "
        f"{RULE}"
    )
    return Table(
        "overfitting",
        f"Overfitting, against {CONTROL}",
        columns,
        tuple(sections),
        (legend, *notes),
        empty=f"No run has a run of {CONTROL} beside it.",
    )


def costs_table(report: Report, notes: tuple[str, ...]) -> Table:
    """What a run of each method took."""
    columns = (
        Column("task"),
        Column("method"),
        Column("seeds", "number"),
        Column("rewards asked", "number"),
        Column("rewards computed", "number"),
        Column("tuning steps", "number"),
        Column("scout steps", "number"),
        Column("seconds", "number", 1),
    )
    sections = []
    for section in report.sections:
        values = tuple(
            (
                row.task,
                row.method,
                len(row.seeds),
                row.cost.rewards_asked,
                row.cost.rewards_computed,
                row.cost.tuning_steps,
                row.cost.scout_steps,
                row.cost.seconds,
            )
            for row in section.rows
        )
        if values:
            sections.append(
                TableSection(
                    section.model, section.protocol, values, label=_label(section.coverage)
                )
            )
    legend = (
        "Means a run. A first tuning of its own is counted in a run, a fine-tuned start that several share in none. Scouts are tuned to score "
        "rows that they never saw (protocol crossfit); the pruned model gets the tuning steps alone."
    )
    return Table("costs", "What a run took", columns, tuple(sections), (legend, *notes))


RULE = (
    f"Shown is a difference of {FEWEST_PAIRS} pairs or more whose 95 % t interval leaves out 0 and whose p, corrected by Holm's method, is "
    f"below {LEVEL}: the p of the exact sign-flip test where the pairs are enough for it to get there at all, else the paired t test's."
)


def _legend(reference: str) -> tuple[str, ...]:
    return (
        "Scores are in points (the metric times 100), mean ± sample deviation over the seeds, with the 95 % t interval of the mean. "
        f"P: removed heads. Gap: train minus dev. The verdict is on the paired differences to {reference}, p corrected for the "
        f"comparisons of the task. {RULE} One run proves nothing.",
        f"Columns named published are the paper's numbers for {published.MODEL}, of an unstated number of runs: not measured here, "
        "and in none of the other columns.",
    )


def gap_verdict(comparison: Comparison) -> str:
    """A comparison of gaps in words."""
    words = verdict(comparison, counted="(task, seed) pairs")
    for direction, size in (("ahead by", "larger by"), ("behind by", "smaller by")):
        if words.startswith(direction):
            return size + words.removeprefix(direction)
    return words


def _section(
    section: Section,
    rows: Iterable[tuple[Value, ...]],
    coverage: Coverage | None,
    with_published: tuple[MethodRow, ...] = (),
) -> TableSection:
    """The rows of a section with what must be said with them; some tables have published numbers beside their methods."""
    notes = _notes(section, with_published, coverage)
    return TableSection(section.model, section.protocol, tuple(rows), notes, _label(coverage))


def _notes(
    section: Section, rows: tuple[MethodRow, ...], coverage: Coverage | None
) -> tuple[str, ...]:
    """What is missing, the section's notes, and that the published numbers are of another model where they are."""
    notes = section.notes
    if coverage is not None and coverage.missing:
        notes = (f"Missing so far: {'; '.join(coverage.missing)}.", *notes)
    if any(row.published for row in rows) and section.model.rpartition("/")[2] != published.MODEL:
        return (*notes, f"Published: another model ({published.MODEL}, here {section.model}).")
    return notes


def _label(coverage: Coverage | None) -> str | None:
    return None if coverage is None else coverage.label


def _completeness(report: Report) -> Iterable[str]:
    if report.left_out:
        number = len(report.left_out)
        runs = (
            "1 run has no result and is" if number == 1 else f"{number} runs have no result and are"
        )
        names = "; ".join(f"{run.folder} ({run.reason})" for run in report.left_out)
        yield f"{runs} in no number here: {names}."


def _method_columns(reference: str) -> tuple[Column, ...]:
    return (
        Column("task"),
        Column("method"),
        Column("seeds", "number"),
        Column("P", "spread", 1),
        Column("dev", "spread", 2),
        Column("dev interval", "range", 2, detail=Detail.PAGE),
        Column("train", "spread", 2, detail=Detail.PAGE),
        Column("gap", "spread", 2, signed=True),
        *_comparison_columns(Detail.DATA),
        Column(f"against {reference}", "sentence"),
        Column("careful", "sentence", detail=Detail.PAGE),
        Column("published P", "number", detail=Detail.PAGE),
        Column("published dev", "number", 2, detail=Detail.PAGE),
    )


def _comparison_columns(detail: Detail) -> tuple[Column, ...]:
    return (
        Column("difference", "number", 2, signed=True, detail=detail),
        Column("difference interval", "range", 2, signed=True, detail=detail),
        Column("p", "number", 4, detail=Detail.DATA),
        Column("p of", detail=Detail.DATA),
        Column("corrected p", "number", 4, detail=detail),
        Column("smallest exact p", "number", 6, detail=Detail.DATA),
        Column("comparisons", "number", detail=Detail.DATA),
        Column("detectable", "number", 2, detail=detail),
    )


def _comparison_values(comparison: Comparison | None) -> tuple[Value, ...]:
    if comparison is None:
        return (None,) * len(_comparison_columns(Detail.DATA))
    found = comparison.paired
    return (
        found.differences.mean,
        _interval(found.differences),
        comparison.p,
        "sign flips" if comparison.exact else "t",
        comparison.corrected,
        found.smallest_p,
        comparison.family,
        found.detectable,
    )


def _method_values(row: MethodRow) -> tuple[Value, ...]:
    return (
        row.task,
        row.method,
        len(row.seeds),
        (row.removed.mean, row.removed.deviation),
        (row.dev.mean, row.dev.deviation),
        _interval(row.dev),
        (row.train.mean, row.train.deviation),
        (row.gap.mean, row.gap.deviation),
        *_comparison_values(row.comparison),
        _words(row),
        "; ".join(row.flags),
        row.published.removed if row.published else None,
        row.published.score if row.published else None,
    )


def _words(row: MethodRow) -> str | None:
    if row.reference is None:
        return None
    if row.comparison is None:
        return f"not compared: no run of {row.reference} with the same seed"
    return verdict(row.comparison)


def _pooled_and_learned(section: Section) -> Iterable[tuple[Value, ...]]:
    """All comparisons, and those on tasks that are learned where that leaves some out."""
    whole = {row.reference: row.tasks for row in section.pooled}
    yield from (_pooled_values(row, ", ".join(row.tasks)) for row in section.pooled)
    fewer = [row for row in section.learned if row.tasks != whole[row.reference]]
    yield from (_pooled_values(row, f"learned: {', '.join(row.tasks)}") for row in fewer)


def _pooled_values(row: PooledRow, tasks: str) -> tuple[Value, ...]:
    return (
        row.method,
        row.reference,
        tasks,
        row.comparison.paired.differences.n,
        *_comparison_values(row.comparison),
        verdict(row.comparison, counted="(task, seed) pairs"),
    )


def _gap_values(row: GapRow) -> tuple[Value, ...]:
    return (
        row.method,
        row.reference,
        ", ".join(row.tasks),
        row.comparison.paired.differences.n,
        row.gap,
        row.reference_gap,
        row.train,
        row.dev,
        *_comparison_values(row.comparison),
        gap_verdict(row.comparison),
    )


def _interval(found: Summary) -> tuple[float, float] | None:
    return None if found.low is None or found.high is None else (found.low, found.high)
