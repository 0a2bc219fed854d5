"""The reader's question, whether to prune heads to regularise a model and what that gives, answered by rules from the comparisons.

Every sentence follows from a comparison that is shown, not shown or not there yet, by the one rule of `auber.metrics.statistics`, so
the words cannot say more than the runs do. What is incomplete says so before anything else. An `Answer` is plain text;
`answer_question` is the same as Markdown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from auber.metrics.statistics import FEWEST_PAIRS, Comparison, verdict
from auber.report.analysis import GapRow, MethodRow, PooledRow, Report, Section
from auber.report.caveats import OTHER_START
from auber.report.markdown import escape
from auber.report.roles import CONTROL, SUBJECT
from auber.report.tables import gap_verdict

_PAIRS = "(task, seed) pairs"

_INTRODUCTION = f"""\
## The answer by model and protocol

What counts is `{SUBJECT}` against `{CONTROL}`: the same fine-tuned model with all the same tuning and no head removed (but for
protocols of which it is said otherwise). Without that control a gain may be the tuning's. Differences are in points, over all
pairs of a task and a seed; "shown" and "not shown" follow the rule under [how to read the tables](#how-to-read-the-tables), and
the sentences are made from the numbers by rules.
"""


@dataclass(frozen=True)
class Answer:
    """What the runs of one model under one protocol say, as plain text."""

    model: str
    protocol: str
    label: str | None  # that not all runs are there yet
    headline: str
    points: tuple[str, ...]


def answers(report: Report) -> tuple[Answer, ...]:
    """An answer for every model and protocol."""
    return tuple(map(_answer, report.sections))


def answer_question(report: Report) -> str:
    """The answer for every model and protocol, as Markdown."""
    return "\n".join([_INTRODUCTION, *map(_to_markdown, answers(report))])


def _answer(section: Section) -> Answer:
    row, gap = control_row(section.pooled), gap_row(section)
    where = f", on the tasks that {CONTROL} has learned" if section.learned else ""
    sentence = _so_far(section) + _headline(control_row(section.learned) or row, gap, where)
    return Answer(
        section.model,
        section.protocol,
        label=section.coverage.label if section.coverage else None,
        headline=sentence[0].upper() + sentence[1:],
        points=tuple(_points(section, row, gap)),
    )


def _to_markdown(answer: Answer) -> str:
    label = f" ({answer.label})" if answer.label else ""
    title = f"### {escape(answer.model)}, protocol {escape(answer.protocol)}{label}"
    lines = [
        title,
        "",
        f"**{answer.headline}**",
        "",
        *(f"- {escape(point)}" for point in answer.points),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _so_far(section: Section) -> str:
    return (
        "So far, and not the last word: "
        if section.coverage is not None and section.coverage.missing
        else ""
    )


def _headline(row: PooledRow | None, gap: GapRow | None, where: str) -> str:
    """The answer in one sentence; `where` says of which tasks the row speaks, if not of all."""
    if row is None:
        return f"no answer yet. No run of {SUBJECT} has a run of {CONTROL} of the same task and seed beside it."
    pairs = row.comparison.paired.differences.n
    if pairs < FEWEST_PAIRS:
        return f"no answer yet. Pairs so far: {pairs}; {FEWEST_PAIRS} are the fewest that can show a difference."
    if direction(row.comparison) > 0:
        return f"yes. Removing the heads {SUBJECT} chose gave a better dev score than the same tuning without removing any{where}."
    if direction(row.comparison) < 0:
        return f"no. Removing the heads {SUBJECT} chose gave a worse dev score than the same tuning without removing any{where}."
    overfits = 0 if gap is None else direction(gap.comparison)
    if overfits < 0:
        return "not for a better score, which is not shown. A smaller distance between train and dev is shown."
    if overfits > 0:
        return "no. No better score is shown, and the distance between train and dev is larger."
    return "not for its own sake. Neither a better dev score nor a smaller distance between train and dev is shown."


def _points(section: Section, row: PooledRow | None, gap: GapRow | None) -> Iterable[str]:
    if row is not None:
        yield f"Dev score of {SUBJECT} against {CONTROL}: {verdict(row.comparison, counted=_PAIRS)}.{_detectable(row.comparison)}"
        if section.protocol in OTHER_START:
            yield OTHER_START[section.protocol]
    learned = control_row(section.learned)
    if learned is not None:
        yield (
            f"Only on tasks where {CONTROL} has learned something, so that it beats always giving the most frequent answer "
            f"({', '.join(learned.tasks)}): {verdict(learned.comparison, counted=_PAIRS)}."
        )
    if gap is not None:
        yield (
            f"Overfitting, train minus dev: {gap.gap:+.1f} points, {gap.reference_gap:+.1f} for {CONTROL}; {gap_verdict(gap.comparison)}. "
            f"Train moved by {gap.train:+.1f} points, dev by {gap.dev:+.1f}.{_why_smaller(row, gap)}"
        )
    subject = [found for found in section.methods if found.method == SUBJECT]
    if subject:
        yield f"By task: {'; '.join(_by_task(found) for found in subject)}."
        yield from _removed(subject)
    yield from _rivals(section.pooled)
    yield from _rivals(section.learned, f"On the tasks that {CONTROL} has learned, ")
    yield from _collapsed(section)
    yield from _price(section)
    if section.coverage is not None and section.coverage.missing:
        yield f"Missing: {'; '.join(section.coverage.missing)}."
    if section.presets:
        yield f"The settings are those of preset {' or '.join(section.presets)}, with what the study changes of them."


def _detectable(comparison: Comparison) -> str:
    """How large a difference would have been found, where none was."""
    amount = comparison.paired.detectable
    if comparison.significant or amount is None or comparison.paired.differences.n < FEWEST_PAIRS:
        return ""
    return f" So many pairs find a difference of about {amount:.1f} points in four of five such studies; smaller ones stay open."


def _why_smaller(row: PooledRow | None, gap: GapRow) -> str:
    """A gap can be smaller for the wrong reason."""
    if direction(gap.comparison) < 0 and (row is None or direction(row.comparison) <= 0):
        return " No gain on dev goes with it: the model fits the training rows less, and does not show that it generalises better."
    return ""


def _by_task(row: MethodRow) -> str:
    if row.comparison is None:
        return f"{row.task} not compared"
    return f"{row.task} {verdict(row.comparison)}"


def _removed(subject: Sequence[MethodRow]) -> Iterable[str]:
    words = ", ".join(f"{row.task} {row.removed.mean:.0f}" for row in subject)
    smaller = (
        " The model is smaller by them whatever the score does."
        if any(row.removed.mean for row in subject)
        else ""
    )
    yield f"Heads removed, mean over the seeds: {words}.{smaller}"


def _rivals(rows: Sequence[PooledRow], where: str = "") -> Iterable[str]:
    """The subject against every other method, by what is shown; `where` says on which tasks, if not on all."""
    others = [row for row in rows if row.reference != CONTROL]
    ahead = [row.reference for row in others if direction(row.comparison) > 0]
    behind = [row.reference for row in others if direction(row.comparison) < 0]
    few = [row.reference for row in others if row.comparison.paired.differences.n < FEWEST_PAIRS]
    level = [row.reference for row in others if row.reference not in (*ahead, *behind, *few)]
    if ahead:
        yield f"{where}{SUBJECT} is shown to be ahead of: {', '.join(ahead)}."
    if behind:
        yield f"{where}{SUBJECT} is shown to be behind: {', '.join(behind)}."
    if level:
        yield f"{where}{'no' if where else 'No'} difference is shown between {SUBJECT} and: {', '.join(level)}."
    if few:
        yield f"{where}{'not' if where else 'Not'} enough runs yet to compare {SUBJECT} with: {', '.join(few)}."


def _collapsed(section: Section) -> Iterable[str]:
    """Runs whose score is that of a constant answer."""
    found = [
        f"{row.task}, {row.method} ({flag})"
        for row in section.methods
        if row.method in (SUBJECT, CONTROL)
        for flag in row.collapse
    ]
    if found:
        yield f"Careful, a model that gives one answer has learned nothing: {'; '.join(found)}."


def _price(section: Section) -> Iterable[str]:
    seconds = {
        name: [row.cost.own_seconds for row in section.methods if row.method == name]
        for name in (SUBJECT, CONTROL)
    }
    if seconds[SUBJECT] and seconds[CONTROL]:
        yield (
            f"What it costs: a run of {SUBJECT} took {fmean(seconds[SUBJECT]):.0f} s, one of {CONTROL} "
            f"{fmean(seconds[CONTROL]):.0f} s, mean over the tasks; the first tuning is counted in none of them."
        )


def control_row(rows: Sequence[PooledRow]) -> PooledRow | None:
    """The subject against the control, among comparisons over pairs of several tasks."""
    return next((row for row in rows if row.reference == CONTROL), None)


def gap_row(section: Section) -> GapRow | None:
    """How much the subject overfits beside the control."""
    return next((row for row in section.gaps if row.method == SUBJECT), None)


def direction(comparison: Comparison) -> int:
    """1 for a shown gain, -1 for a shown loss, 0 where nothing is shown."""
    if not comparison.significant:
        return 0
    return 1 if comparison.paired.differences.mean > 0 else -1
