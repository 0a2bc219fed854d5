"""What the trials of a grid say: the scores of each rate, the rate to take, and what to beware of.

The rule is one line and is written into every result. It weighs tasks alike, whatever their metric and size.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from auber.run.rates.record import Record, TaskRecord, Trial

RULE = "the highest mean over the tasks of the mean score over the seeds; of equal ones the smallest rate"


@dataclass(frozen=True)
class TaskScores:
    """The held-out scores of a task; tuples run over the rates."""

    task: str
    metric: str
    majority: float  # of always answering the most frequent class (of regression: the mean), mean over the seeds
    means: tuple[float, ...]
    deviations: tuple[float, ...] | None  # standard deviation over the seeds; None for a single one
    one_class: tuple[int, ...]  # seeds with which every held-out row got the same answer
    best: float  # the best rate for this task alone


@dataclass(frozen=True)
class Choice:
    """The rate to take."""

    best: float
    rule: str
    rates: tuple[float, ...]  # ascending
    means: tuple[float, ...]  # over the tasks
    tasks: tuple[TaskScores, ...]
    notes: tuple[str, ...]  # what to beware of


def choose_rate(record: Record) -> Choice:
    """The choice between the rates a record was asked for; all of them must have been tried."""
    rates, seeds = tuple(sorted(record.asked_rates)), record.asked_seeds
    found = {trial.key: trial for trial in record.trials}
    tasks = {task.name: task for task in record.tasks}
    scores = tuple(
        _summarise(
            tasks[name], rates, [[found[name, seed, rate] for seed in seeds] for rate in rates]
        )
        for name in record.asked_tasks
    )
    means = tuple(
        statistics.fmean(column) for column in zip(*(task.means for task in scores), strict=True)
    )
    best = _best(rates, means)
    notes = (*_weaknesses(rates, scores, len(seeds)), *_at_an_end(best, rates))
    return Choice(best, RULE, rates, means, scores, notes)


def to_json(record: Record) -> dict[str, Any]:
    """The result as a plain JSON object: the record, and the choice once everything asked for was tried."""
    return {**record.to_json(), "choice": None if record.missing else asdict(choose_rate(record))}


def _summarise(
    task: TaskRecord, rates: tuple[float, ...], columns: list[list[Trial]]
) -> TaskScores:
    """The scores of one task; `columns` holds the trials of each rate."""
    by_rate = [[trial.score for trial in column] for column in columns]
    means = tuple(statistics.fmean(scores) for scores in by_rate)
    several = len(by_rate[0]) > 1
    return TaskScores(
        task=task.name,
        metric=task.metric,
        majority=statistics.fmean(trial.majority for trial in columns[0]),
        means=means,
        deviations=tuple(statistics.stdev(scores) for scores in by_rate) if several else None,
        one_class=tuple(sum(trial.one_class for trial in column) for column in columns),
        best=_best(rates, means),
    )


def _best(rates: Sequence[float], means: Sequence[float]) -> float:
    """`fmean` rounds once, so equal scores in another order of the seeds are a tie."""
    return max(zip(means, rates, strict=True), key=lambda pair: (pair[0], -pair[1]))[1]


def _weaknesses(
    rates: tuple[float, ...], scores: tuple[TaskScores, ...], num_seeds: int
) -> list[str]:
    """The rates that have not learned a task."""
    notes = []
    for task in scores:
        for rate, mean, one_class in zip(rates, task.means, task.one_class, strict=True):
            if one_class:
                notes.append(
                    f"{task.task} at {rate:g}: every held-out row got the same answer with {one_class} of {num_seeds} seeds"
                )
            elif mean <= task.majority:
                notes.append(
                    f"{task.task} at {rate:g}: {100 * mean:.2f} is no better than always answering the same "
                    f"({100 * task.majority:.2f})"
                )
    return notes


def _at_an_end(best: float, rates: tuple[float, ...]) -> list[str]:
    """A best rate with an untried neighbour may not be the best."""
    if len(rates) == 1:
        return [f"{best:g} was the only rate tried; add smaller and larger ones"]
    if best == rates[0]:
        return [f"the best rate is the smallest tried; add smaller ones than {best:g}"]
    if best == rates[-1]:
        return [f"the best rate is the largest tried; add larger ones than {best:g}"]
    return []
