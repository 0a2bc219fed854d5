"""The runs of a method on a task, seed by seed, and what two methods of a task have in common.

Scores are in points (the metric times 100). Several draws of one seed are averaged before anything else, so that a seed
counts once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

from auber.metrics.statistics import Summary, summary
from auber.report.record import RunRecord

Item = TypeVar("Item")
Group = TypeVar("Group")


@dataclass(frozen=True)
class Cell:
    """The runs of one method on one task, by seed."""

    task: str
    method: str
    runs: Mapping[int, Sequence[RunRecord]]

    def per_seed(self, value: Callable[[RunRecord], float]) -> dict[int, float]:
        """The mean over the draws of each seed."""
        return {seed: fmean(map(value, draws)) for seed, draws in self.runs.items()}

    def summary(self, value: Callable[[RunRecord], float]) -> Summary:
        """Mean and spread over the seeds."""
        return summary(list(self.per_seed(value).values()))

    def mean(self, value: Callable[[RunRecord], float]) -> float:
        """The mean over the seeds."""
        return fmean(self.per_seed(value).values())

    @property
    def every(self) -> list[RunRecord]:
        """All runs, seed after seed."""
        return [run for draws in self.runs.values() for run in draws]


Cells = Mapping[str, Mapping[str, Cell]]  # task -> method -> runs


def make_cells(runs: Sequence[RunRecord]) -> Cells:
    """The cells of runs of one model under one protocol, tasks and seeds in order."""
    return {
        task: {
            method: Cell(task, method, dict(sorted(group(of_method, lambda run: run.seed).items())))
            for method, of_method in group(of_task, lambda run: run.method).items()
        }
        for task, of_task in sorted(group(runs, lambda run: run.task).items())
    }


def group(items: Iterable[Item], key: Callable[[Item], Group]) -> dict[Group, list[Item]]:
    """Items by a key, each group in the order they came."""
    groups: dict[Group, list[Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(groups)


def dev_differences(of_task: Mapping[str, Cell], method: str, reference: str) -> dict[int, float]:
    """By seed, the dev score of a method minus the reference's, where both were run."""
    seeds = common_seeds(of_task, method, reference)
    if not seeds:
        return {}
    own, other = of_task[method].per_seed(dev_points), of_task[reference].per_seed(dev_points)
    return {seed: own[seed] - other[seed] for seed in seeds}


def common_seeds(of_task: Mapping[str, Cell], method: str, reference: str) -> list[int]:
    """The seeds of a task that two methods have in common."""
    if method not in of_task or reference not in of_task:
        return []
    return [seed for seed in of_task[method].runs if seed in of_task[reference].runs]


def dev_points(run: RunRecord) -> float:
    """The score on dev, in points."""
    return 100 * run.dev


def train_points(run: RunRecord) -> float:
    """The score on train, in points."""
    return 100 * run.train


def gap_points(run: RunRecord) -> float:
    """Train minus dev, in points."""
    return 100 * (run.train - run.dev)
