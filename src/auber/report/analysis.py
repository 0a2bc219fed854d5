"""Runs to rows: each method on each task over its seeds, and the comparisons, each within one model and one protocol.

Scores are in points from here on, and a seed counts once (`cells`). A comparison is made on the seeds two methods have in
common, as method minus reference; `caveats` has what must be known before believing one. A family of comparisons, corrected
together, is what one table asks of one set of pairs: the methods of one task against `original+tuning`; the ablations of one
task against `auber`; the pooled comparisons of `auber`; those with its ablations; the pooled train minus dev of every method
against that of `original+tuning`. On the tasks that the control has learned, `auber` against it stands alone, and against the
other methods they are a family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from auber.metrics.statistics import Comparison, Summary, compare
from auber.report.caveats import find_collapse, find_flags, find_notes
from auber.report.cells import (
    Cells,
    common_seeds,
    dev_differences,
    dev_points,
    gap_points,
    group,
    make_cells,
    train_points,
)
from auber.report.collect import Collection
from auber.report.coverage import Coverage, Key, cover
from auber.report.folders import LeftOut
from auber.report.published import Published, published
from auber.report.record import RunRecord
from auber.report.roles import ABLATIONS, CONTROL, METHODS, SUBJECT, is_ablation


@dataclass(frozen=True)
class TaskRow:
    """One task as it was used."""

    task: str
    metric: str
    labels: int
    train_rows: int
    dev_rows: int
    majority: tuple[float, float] | None  # least and greatest over the seeds, in points


@dataclass(frozen=True)
class Cost:
    """What one run took, on average."""

    rewards_asked: float
    rewards_computed: float
    tuning_steps: float
    scout_steps: float
    seconds: float
    first_seconds: float  # of them, into a first tuning of its own

    @property
    def own_seconds(self) -> float:
        """What came after the first tuning, which most runs share and some have to make for themselves."""
        return self.seconds - self.first_seconds


@dataclass(frozen=True)
class MethodRow:
    """One method on one task, over its seeds."""

    task: str
    method: str
    seeds: tuple[int, ...]
    draws: int  # the most draws a seed has
    removed: Summary
    heads: float  # there were before any was removed
    dev: Summary
    train: Summary
    gap: Summary
    reference: str | None  # what it is compared with; None for the reference itself
    comparison: Comparison | None  # None without a seed in common
    collapse: tuple[str, ...]  # in how many runs the score is that of a constant answer
    flags: tuple[
        str, ...
    ]  # all that a reader must know before believing the row, the collapse among it
    published: Published | None
    cost: Cost


@dataclass(frozen=True)
class PooledRow:
    """One comparison over all pairs of a task and a seed."""

    method: str
    reference: str
    tasks: tuple[str, ...]
    comparison: Comparison


@dataclass(frozen=True)
class GapRow:
    """How much a method overfits beside the control, over all pairs of a task and a seed that both have."""

    method: str
    reference: str
    tasks: tuple[str, ...]
    gap: float  # train minus dev, mean over the pairs
    reference_gap: float
    train: float  # difference of the means
    dev: float
    comparison: Comparison  # of the gaps


@dataclass(frozen=True)
class Section:
    """All that was measured with one model under one protocol, and how much that is of what was asked for.

    A coverage is None where no study asks for such runs.
    """

    model: str
    protocol: str
    presets: tuple[str, ...]  # those that the studies take their settings from
    methods: tuple[MethodRow, ...]
    ablations: tuple[MethodRow, ...]
    pooled: tuple[PooledRow, ...]
    learned_tasks: tuple[str, ...]  # those on which the control beats a constant answer
    learned: tuple[
        PooledRow, ...
    ]  # the competitors of `pooled` on these tasks alone; empty where they are all or none
    gaps: tuple[GapRow, ...]
    notes: tuple[str, ...]
    coverage: Coverage | None
    methods_coverage: Coverage | None
    ablations_coverage: Coverage | None

    @property
    def rows(self) -> list[MethodRow]:
        """Methods and ablations by task, each once."""
        known = {(row.task, row.method) for row in self.methods}
        others = [row for row in self.ablations if (row.task, row.method) not in known]
        return sorted([*self.methods, *others], key=lambda row: row.task)


@dataclass(frozen=True)
class Report:
    """Everything the tables show."""

    tasks: tuple[TaskRow, ...]
    sections: tuple[Section, ...]
    runs: int
    starts: int
    left_out: tuple[LeftOut, ...]


def analyse(collection: Collection) -> Report:
    """The rows of all tables."""
    grouped = group(collection.runs, lambda run: (run.model, run.protocol))
    places = sorted({*grouped, *((model, protocol) for model, protocol, *_ in collection.wanted)})
    sections = tuple(
        _section(
            *place,
            tuple(preset for *other, preset in collection.presets if tuple(other) == place),
            grouped.get(place, []),
            [key for key in collection.wanted if key[:2] == place],
        )
        for place in places
    )
    return Report(
        _task_rows(collection.runs),
        sections,
        len(collection.runs),
        collection.starts,
        collection.left_out,
    )


def _section(
    model: str,
    protocol: str,
    presets: tuple[str, ...],
    runs: Sequence[RunRecord],
    wanted: Sequence[Key],
) -> Section:
    cells = make_cells(runs)
    names = {run.method for run in runs}
    found = {run.key for run in runs}
    ablations = _ordered(filter(is_ablation, names), ABLATIONS)
    methods = _ordered(names - set(ablations), METHODS)
    rivals = [name for name in methods if name != SUBJECT]
    rivals.sort(key=lambda name: name != CONTROL)  # the control is the first question
    return Section(
        model,
        protocol,
        presets,
        methods=tuple(_method_rows(cells, methods, CONTROL)),
        ablations=tuple(_method_rows(cells, [SUBJECT, *ablations], SUBJECT)) if ablations else (),
        pooled=(*_pooled_rows(cells, rivals), *_pooled_rows(cells, ablations)),
        learned_tasks=tuple(_learned_cells(cells)),
        learned=tuple(_learned_rows(cells, rivals)),
        gaps=tuple(_gap_rows(cells, [*methods, *ablations])),
        notes=tuple(find_notes(cells, protocol)),
        coverage=cover(wanted, found),
        methods_coverage=cover([key for key in wanted if not is_ablation(key[3])], found),
        ablations_coverage=_ablations_coverage(wanted, found),
    )


def _ablations_coverage(wanted: Sequence[Key], found: set[Key]) -> Coverage | None:
    """Of the ablations, and of the subject in the blocks that have one to compare with it."""
    blocks = {(task, seed) for _, _, task, method, seed, _ in wanted if is_ablation(method)}
    keys = [
        key
        for key in wanted
        if (key[2], key[4]) in blocks and (is_ablation(key[3]) or key[3] == SUBJECT)
    ]
    return cover(keys, found)


def _method_rows(cells: Cells, methods: Sequence[str], reference: str) -> Iterable[MethodRow]:
    for task, of_task in cells.items():
        present = [name for name in methods if name in of_task]
        family = {
            name: list(differences.values())
            for name in present
            if name != reference and (differences := dev_differences(of_task, name, reference))
        }
        comparisons = compare(family)
        seeds = {seed for name in present for seed in of_task[name].runs}
        for name in present:
            cell = of_task[name]
            yield MethodRow(
                task,
                name,
                seeds=tuple(cell.runs),
                draws=max(map(len, cell.runs.values())),
                removed=cell.summary(lambda run: run.removed),
                heads=cell.mean(lambda run: run.layers * run.heads),
                dev=cell.summary(dev_points),
                train=cell.summary(train_points),
                gap=cell.summary(gap_points),
                reference=None if name == reference else reference,
                comparison=comparisons.get(name),
                collapse=tuple(find_collapse(cell)),
                flags=(*find_collapse(cell), *find_flags(cell, of_task.get(SUBJECT), seeds)),
                published=published(task, name),
                cost=Cost(
                    cell.mean(lambda run: run.rewards_asked),
                    cell.mean(lambda run: run.rewards_computed),
                    cell.mean(lambda run: run.tuning_steps),
                    cell.mean(lambda run: run.scout_steps),
                    cell.mean(lambda run: run.seconds),
                    cell.mean(lambda run: run.times.get("first", 0.0)),
                ),
            )


def _pooled_rows(cells: Cells, rivals: Sequence[str]) -> Iterable[PooledRow]:
    """The subject against each of some methods, over all tasks: one family."""
    pairs = {
        rival: {task: dev_differences(of_task, SUBJECT, rival) for task, of_task in cells.items()}
        for rival in rivals
    }
    family = {
        rival: [
            difference for differences in of_rival.values() for difference in differences.values()
        ]
        for rival, of_rival in pairs.items()
    }
    comparisons = compare(
        {rival: differences for rival, differences in family.items() if differences}
    )
    for rival, comparison in comparisons.items():
        tasks = tuple(task for task, differences in pairs[rival].items() if differences)
        yield PooledRow(SUBJECT, rival, tasks, comparison)


def _compared(cells: Cells) -> Cells:
    """The tasks on which the subject has the control beside it."""
    return {
        task: of_task
        for task, of_task in cells.items()
        if dev_differences(of_task, SUBJECT, CONTROL)
    }


def _learned_cells(cells: Cells) -> Cells:
    """Those of them that the control has learned."""
    found = _compared(cells)
    return {
        task: of_task
        for task, of_task in found.items()
        if of_task[CONTROL].mean(lambda run: run.above_constant) > 0
    }


def _learned_rows(cells: Cells, rivals: Sequence[str]) -> Iterable[PooledRow]:
    """The subject against the control, and against its other rivals, on the tasks that are learned; none where these are all or none."""
    learned = _learned_cells(cells)
    if len(learned) in (0, len(_compared(cells))):
        return
    yield from _pooled_rows(learned, [CONTROL])
    yield from _pooled_rows(learned, [name for name in rivals if name != CONTROL])


def _gap_rows(cells: Cells, methods: Sequence[str]) -> Iterable[GapRow]:
    """Train minus dev of each method against the control's, over all tasks: one family."""
    pairs = {
        method: {
            task: seeds
            for task, of_task in cells.items()
            if (seeds := common_seeds(of_task, method, CONTROL))
        }
        for method in methods
        if method != CONTROL
    }
    pairs = {method: tasks for method, tasks in pairs.items() if tasks}

    def values(name: str, method: str, value: Callable[[RunRecord], float]) -> list[float]:
        """Of a method, or of the control, in the pairs of that method."""
        found = {task: cells[task][name].per_seed(value) for task in pairs[method]}
        return [found[task][seed] for task, seeds in pairs[method].items() for seed in seeds]

    family = {
        method: [
            a - b
            for a, b in zip(
                values(method, method, gap_points), values(CONTROL, method, gap_points), strict=True
            )
        ]
        for method in pairs
    }
    for method, comparison in compare(family).items():
        yield GapRow(
            method,
            CONTROL,
            tuple(pairs[method]),
            gap=fmean(values(method, method, gap_points)),
            reference_gap=fmean(values(CONTROL, method, gap_points)),
            train=fmean(values(method, method, train_points))
            - fmean(values(CONTROL, method, train_points)),
            dev=fmean(values(method, method, dev_points))
            - fmean(values(CONTROL, method, dev_points)),
            comparison=comparison,
        )


def _task_rows(runs: Sequence[RunRecord]) -> tuple[TaskRow, ...]:
    grouped = group(
        runs, lambda run: (run.task, run.metric, run.labels, run.train_rows, run.dev_rows)
    )
    rows = []
    for (task, metric, labels, train_rows, dev_rows), of_task in sorted(grouped.items()):
        shares = [100 * run.majority for run in of_task if run.majority is not None]
        rows.append(
            TaskRow(
                task,
                metric,
                labels,
                train_rows,
                dev_rows,
                (min(shares), max(shares)) if shares else None,
            )
        )
    return tuple(rows)


def _ordered(names: Iterable[str], order: Sequence[str]) -> list[str]:
    return sorted(
        names, key=lambda name: (order.index(name) if name in order else len(order), name)
    )
