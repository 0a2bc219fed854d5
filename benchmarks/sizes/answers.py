"""The statistics of the study: differences of an arm from others, pooled over tasks.

A difference is that of the dev scores of two models of one task, seed and fine-tuned model, in
points; several fine-tuned models of a seed count once, by their mean. Tasks weigh the same: the
estimate is the mean of the tasks' means, its variance the sum of theirs, and its t interval has the
degrees of freedom of Welch and Satterthwaite. A task of fewer than two pairs does not count.

Checked by simulation, six tasks of normal differences whose deviations vary fivefold: false alarms
at 5 % are 3.3 % with two pairs of each task, 5.6 % with three and 4.7 % with five.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, variance
from typing import NamedTuple

from scipy.stats import t as student

from auber.metrics.statistics import LEVEL, holm
from benchmarks.sizes.plan import Plan, Question
from benchmarks.sizes.record import Model

ByTask = dict[str, list[float]]


class Estimate(NamedTuple):
    """A mean difference; without a deviation it has no interval."""

    mean: float
    error: float
    freedom: float

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % t interval."""
        margin = self.error * float(student.ppf(1 - LEVEL / 2, self.freedom))
        return (self.mean - margin, self.mean + margin) if self.error else None

    @property
    def p(self) -> float:
        """The two-sided p of no difference; 1 without a deviation."""
        if not self.error:
            return 1.0
        return float(2 * student.sf(abs(self.mean) / self.error, self.freedom))

    def lower(self) -> float:
        """Return the bound that the difference is above, one-sided at 95 %."""
        return self.mean - self.error * float(student.ppf(1 - LEVEL, self.freedom))


class Answer(NamedTuple):
    """The answer to a question for one size and other arm; empty if it was not measured."""

    question: str
    words: str
    interval: str
    pairs: str


def differences(
    models: Sequence[Model], question: Question, keep: float | None, other: str, plan: Plan
) -> ByTask:
    """Return the differences from another arm at the same size, or from its only model."""
    other_keep = keep if plan.has_sizes(other) else None
    scores: dict[tuple[str, int, str], dict[tuple[str, float | None], float]] = defaultdict(dict)
    for model in models:
        scores[model.task, model.seed, model.start][model.arm, model.keep] = model.dev
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for (task, seed, _), block in scores.items():
        own, against = block.get((question.arm, keep)), block.get((other, other_keep))
        is_asked = seed in question.seeds and task in (question.tasks or plan.tasks)
        if is_asked and own is not None and against is not None:
            found[task, seed].append(own - against)
    by_task: ByTask = defaultdict(list)
    for (task, _), values in found.items():
        by_task[task].append(fmean(values))
    return by_task


def pool(by_task: Mapping[str, Sequence[float]]) -> Estimate | None:
    """Return the mean over tasks that weigh the same; None without a task of two pairs."""
    strata = [values for values in by_task.values() if len(values) > 1]
    if not strata:
        return None
    parts = [variance(values) / len(values) / len(strata) ** 2 for values in strata]
    freedom = sum(part**2 / (len(values) - 1) for part, values in zip(parts, strata, strict=True))
    total = math.fsum(parts)
    return Estimate(fmean(map(fmean, strata)), math.sqrt(total), total**2 / freedom if total else 1)


def answer(models: Sequence[Model], plan: Plan) -> list[Answer]:
    """Return the answers to all questions; tests without a margin are corrected together."""
    asked = [
        (question, keep, other, differences(models, question, keep, other, plan))
        for question in plan.questions
        for keep in question.sizes or (None,)
        for other in question.against
    ]
    estimates = [pool(by_task) for *_, by_task in asked]
    tested = [
        number
        for number, (question, *_) in enumerate(asked)
        if question.tested and question.margin is None and estimates[number] is not None
    ]
    p_values = [found.p for number in tested if (found := estimates[number])]
    corrected = dict(zip(tested, holm(p_values), strict=True))
    return [
        _describe(*case, estimate, corrected.get(number), plan)
        for number, (case, estimate) in enumerate(zip(asked, estimates, strict=True))
    ]


def _describe(
    question: Question,
    keep: float | None,
    other: str,
    by_task: ByTask,
    estimate: Estimate | None,
    corrected: float | None,
    plan: Plan,
) -> Answer:
    size = "" if keep is None else f"{keep:g}"
    text = f"{question.name}: {question.text.format(size=size, other=other)}"
    if estimate is None:
        return Answer(text, "", "", "")
    tasks = question.tasks or (*plan.tasks,)
    counted = [len(values) for values in by_task.values() if len(values) > 1]
    pairs = f"{sum(counted)} of {len(tasks) * len(question.seeds)}"
    if len(counted) < len(tasks):
        pairs += f", {len(counted)} of {len(tasks)} tasks"
    words = _judge(question, estimate, corrected)
    return Answer(text, words, format_estimate(estimate), pairs)


def _judge(question: Question, found: Estimate, corrected: float | None) -> str:
    """Return the answer in one sentence."""
    if question.margin is not None:
        lost = -found.lower()
        if lost < question.margin:
            return f"Yes: at most {max(lost, 0.0):.2f} points are lost (one-sided 95 % bound)."
        return f"Not shown: up to {lost:.2f} points may be lost (one-sided 95 % bound)."
    if corrected is None:
        return "An estimate, not tested."
    if corrected < LEVEL:
        if found.mean > 0:
            return f"Yes, by {found.mean:.1f} points (p {corrected:.2g})."
        return f"No, it is behind by {-found.mean:.1f} points (p {corrected:.2g})."
    return f"No significant difference (p {corrected:.2g})."


def format_estimate(found: Estimate) -> str:
    """Format a mean difference with its interval."""
    words = f"{found.mean:+.1f}"
    if found.interval is None:
        return words
    low, high = found.interval
    return f"{words} ({low:+.1f} to {high:+.1f})"
