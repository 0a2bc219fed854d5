"""Verdicts on whether pruning heads helps and what it costs, by model and protocol.

Every sentence follows by a rule from a comparison of the analysis, so the words claim no more than
the runs show. Incomplete results are marked first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from auber.metrics.statistics import FEWEST_PAIRS, Comparison
from auber.report.analysis import GapRow, PooledRow, Report, Section
from auber.report.caveats import OTHER_START
from auber.report.records import CONTROL, SUBJECT


@dataclass(frozen=True)
class Verdict:
    """What to know first: one sentence and its reasons."""

    about: str
    headline: str
    points: tuple[str, ...]
    label: str | None = None  # that runs are missing


def verdicts(report: Report) -> tuple[Verdict, ...]:
    """Return the verdict on every model and protocol."""
    return tuple(map(_judge, report.sections))


def control_row(rows: Sequence[PooledRow]) -> PooledRow | None:
    """Return the comparison of the subject with the control."""
    return next((row for row in rows if row.reference == CONTROL), None)


def gap_row(section: Section) -> GapRow | None:
    """Return the comparison of the subject's overfitting with the control's."""
    return next((row for row in section.gaps if row.method == SUBJECT), None)


def direction(comparison: Comparison | None) -> int:
    """Return 1 for a significant gain, -1 for a significant loss, else 0."""
    if comparison is None or not comparison.significant:
        return 0
    return 1 if comparison.paired.differences.mean > 0 else -1


def own_seconds(section: Section, method: str) -> float | None:
    """Return the mean time of a method's runs over the tasks, without the first tuning."""
    seconds = [row.cost.own_seconds for row in section.methods if row.method == method]
    return fmean(seconds) if seconds else None


def _judge(section: Section) -> Verdict:
    row, gap = control_row(section.pooled), gap_row(section)
    learned = control_row(section.learned)
    headline = _headline(learned or row, gap)
    if learned is not None and direction(learned.comparison):
        headline = f"{headline[:-1]}, on the tasks that {CONTROL} has learned."
    if section.missing:
        headline = f"Preliminary: {headline[0].lower()}{headline[1:]}"
    points = (*_scores(section, row, learned, gap), *_circumstances(section))
    return Verdict(f"{section.model}, protocol {section.protocol}", headline, points, section.label)


def _headline(row: PooledRow | None, gap: GapRow | None) -> str:
    if row is None:
        return (
            f"No answer yet: no run of {SUBJECT} has a run of {CONTROL} of the same task and seed."
        )
    if row.pairs < FEWEST_PAIRS:
        return f"No answer yet: {row.pairs} of at least {FEWEST_PAIRS} pairs."
    change = direction(row.comparison)
    if change:
        yes, better = ("Yes", "better") if change > 0 else ("No", "worse")
        return (
            f"{yes}: removing the heads that {SUBJECT} chose gives a significantly {better} dev "
            "score than the same tuning without pruning."
        )
    overfits = direction(gap.comparison) if gap else 0
    if overfits < 0:
        return "No significantly better dev score, but a significantly smaller gap to train."
    if overfits > 0:
        return "No: no significantly better dev score, and a significantly larger gap to train."
    return "No: neither the dev score nor its gap to train is significantly better."


def _scores(
    section: Section, row: PooledRow | None, learned: PooledRow | None, gap: GapRow | None
) -> Iterable[str]:
    if row is not None:
        sentence = f"Dev score of {SUBJECT} against {CONTROL}: {row.verdict}."
        amount = row.comparison.paired.detectable
        if amount is not None and row.pairs >= FEWEST_PAIRS and not row.comparison.significant:
            sentence += (
                f" {row.pairs} pairs detect a difference of {amount:.1f} points with a power of "
                "80 %."
            )
        yield sentence
        if section.protocol in OTHER_START:
            yield OTHER_START[section.protocol]
    if learned is not None:
        yield (
            f"Only on tasks where {CONTROL} beats a constant answer ({', '.join(learned.tasks)}): "
            f"{learned.verdict}."
        )
    if gap is not None:
        sentence = (
            f"Overfitting, train minus dev: {gap.gap:+.1f} points, {gap.reference_gap:+.1f} for "
            f"{CONTROL}; {gap.verdict}. Train changes by {gap.train:+.1f} points, dev by "
            f"{gap.dev:+.1f}."
        )
        if direction(gap.comparison) < 0 and (row is None or direction(row.comparison) <= 0):
            sentence += " Dev does not gain: the model only fits the training rows less."
        yield sentence
    subject = [found for found in section.methods if found.method == SUBJECT]
    if subject:
        verdicts = (f"{found.task} {found.verdict or 'not compared'}" for found in subject)
        yield f"By task: {'; '.join(verdicts)}."
        removed = ", ".join(f"{found.task} {found.removed.mean:.0f}" for found in subject)
        yield f"Heads removed, mean over the seeds: {removed}."
    yield from _rivals(section.pooled)
    yield from _rivals(section.learned, f"On the tasks that {CONTROL} has learned, ")


def _rivals(rows: Sequence[PooledRow], where: str = "") -> Iterable[str]:
    """Sort the other methods by the result of their comparison."""
    sentences = {
        f"{where}{SUBJECT} is significantly better than": 1,
        f"{where}{SUBJECT} is significantly worse than": -1,
        f"{where}{SUBJECT} does not differ significantly from": 0,
        f"{f'{where}there' if where else 'There'} are too few runs to compare {SUBJECT} with": None,
    }
    for words, wanted in sentences.items():
        names = [
            row.reference
            for row in rows
            if row.reference != CONTROL
            and wanted == (direction(row.comparison) if row.pairs >= FEWEST_PAIRS else None)
        ]
        if names:
            yield f"{words}: {', '.join(names)}."


def _circumstances(section: Section) -> Iterable[str]:
    collapsed = [
        f"{found.task}, {found.method} ({flag})"
        for found in section.methods
        if found.method in (SUBJECT, CONTROL)
        for flag in found.collapse
    ]
    if collapsed:
        yield (
            f"Careful: a model with a constant answer has learned nothing: {'; '.join(collapsed)}."
        )
    own, control = own_seconds(section, SUBJECT), own_seconds(section, CONTROL)
    if own is not None and control is not None:
        yield (
            f"Cost: {own:.0f} s for a run of {SUBJECT}, {control:.0f} s for one of {CONTROL}, mean "
            "over the tasks and without the first tuning."
        )
    if section.missing:
        yield f"Missing: {'; '.join(section.missing)}."
    if section.presets:
        yield f"Settings: preset {' or '.join(section.presets)} with the changes of the study."
