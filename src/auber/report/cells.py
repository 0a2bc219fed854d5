"""The runs of one method on one task, seed by seed, and the roles of methods in a report.

Scores are in points: the metric times 100. Draws of one seed are averaged first, so that every seed
counts once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

from auber.metrics.statistics import Summary, summary
from auber.report.records import RunRecord

Item = TypeVar("Item")
Group = TypeVar("Group")

CONTROL = "original+tuning"  # the reference: the same tuning without pruning
SUBJECT = "auber"  # the method that a report is about
METHODS = (
    "original", CONTROL, SUBJECT, "random", "confidence", "michel", "voita", "greedy", "exhaustive",
)  # fmt: skip
ABLATIONS = ("auber-query", "auber-key", "auber-l2", "auber-reverse")
CONTROLS = ("original", CONTROL)  # they remove nothing
MATCHED = ("random", "confidence", "michel", "voita")  # with as many heads as the subject


def is_ablation(method: str) -> bool:
    """Return whether a method is the subject with one thing changed."""
    return method.startswith(f"{SUBJECT}-")


def ordered(names: Iterable[str], order: Sequence[str] = METHODS) -> list[str]:
    """Sort methods as in the paper, unknown ones last by name."""
    return sorted(
        names, key=lambda name: (order.index(name) if name in order else len(order), name)
    )


@dataclass(frozen=True)
class Cell:
    """The runs of one method on one task, by seed."""

    method: str
    runs: Mapping[int, Sequence[RunRecord]]

    @property
    def all_runs(self) -> list[RunRecord]:
        """Return all runs in the order of their seeds."""
        return [run for draws in self.runs.values() for run in draws]

    def per_seed(self, value: Callable[[RunRecord], float]) -> dict[int, float]:
        """Return the mean over the draws of each seed."""
        return {seed: fmean(map(value, draws)) for seed, draws in self.runs.items()}

    def summary(self, value: Callable[[RunRecord], float]) -> Summary:
        """Return mean and spread over the seeds."""
        return summary(list(self.per_seed(value).values()))

    def mean(self, value: Callable[[RunRecord], float]) -> float:
        """Return the mean over the seeds."""
        return fmean(self.per_seed(value).values())


Cells = Mapping[str, Mapping[str, Cell]]  # by task and method


def make_cells(runs: Iterable[RunRecord]) -> Cells:
    """Return the cells of one model and protocol, tasks and seeds in order."""
    return {
        task: {
            method: Cell(method, dict(sorted(group(of_method, lambda run: run.seed).items())))
            for method, of_method in group(of_task, lambda run: run.method).items()
        }
        for task, of_task in sorted(group(runs, lambda run: run.task).items())
    }


def group(items: Iterable[Item], key: Callable[[Item], Group]) -> dict[Group, list[Item]]:
    """Group items by a key in the order they come."""
    groups: dict[Group, list[Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(groups)


def common_seeds(of_task: Mapping[str, Cell], method: str, reference: str) -> list[int]:
    """Return the seeds of a task that two methods have in common."""
    if method not in of_task or reference not in of_task:
        return []
    return [seed for seed in of_task[method].runs if seed in of_task[reference].runs]


def dev_differences(of_task: Mapping[str, Cell], method: str, reference: str) -> list[float]:
    """Return the dev score of a method minus the reference's for each seed of both."""
    seeds = common_seeds(of_task, method, reference)
    if not seeds:
        return []
    own, other = of_task[method].per_seed(dev_points), of_task[reference].per_seed(dev_points)
    return [own[seed] - other[seed] for seed in seeds]


def dev_points(run: RunRecord) -> float:
    """Return the dev score in points."""
    return 100 * run.dev


def train_points(run: RunRecord) -> float:
    """Return the train score in points."""
    return 100 * run.train


def gap_points(run: RunRecord) -> float:
    """Return train minus dev in points."""
    return 100 * (run.train - run.dev)
