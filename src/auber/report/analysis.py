"""Rows of all tables: each method on each task over its seeds, and paired comparisons.

Models and protocols are never mixed. Differences are method minus reference on common seeds. These
comparisons form one family each and are corrected together: the methods of one task against the
control; the ablations of one task against the subject; the subject against all other methods, and
against its ablations, over all pairs; the gaps of all methods against the control's. On the tasks
that the control has learned, the subject against the control stands alone, and against the other
methods forms a family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from auber.metrics.statistics import Comparison, Summary, compare
from auber.report.caveats import find_collapse, find_flags, find_notes
from auber.report.cells import (
    ABLATIONS,
    CONTROL,
    SUBJECT,
    Cell,
    Cells,
    common_seeds,
    dev_differences,
    dev_points,
    gap_points,
    group,
    is_ablation,
    make_cells,
    ordered,
    train_points,
)
from auber.report.published import Published, published
from auber.report.records import Key, RunRecord
from auber.report.runs import Collection, Coverage, LeftOut, cover


@dataclass(frozen=True)
class TaskRow:
    """One task as it was used."""

    task: str
    metric: str
    labels: int
    train_rows: int
    dev_rows: int
    majority: tuple[float, float] | None  # smallest and largest over the seeds, in points


@dataclass(frozen=True)
class Cost:
    """The mean cost of a run."""

    rewards_asked: float
    rewards_computed: float
    tuning_steps: float
    scout_steps: float  # of fold models
    seconds: float
    first_seconds: float  # of them for a first tuning of its own

    @property
    def own_seconds(self) -> float:
        """The time after the first tuning, which most runs share."""
        return self.seconds - self.first_seconds


@dataclass(frozen=True)
class MethodRow:
    """One method on one task over its seeds."""

    task: str
    method: str
    seeds: tuple[int, ...]
    draws: int  # the largest number of draws of a seed
    removed: Summary
    heads: float  # before pruning
    dev: Summary
    train: Summary
    gap: Summary
    reference: str | None  # None for the reference itself
    comparison: Comparison | None  # None without a common seed
    collapse: tuple[str, ...]  # how many runs score like a constant answer
    flags: tuple[str, ...]  # all caveats, `collapse` among them
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
class GapRow(PooledRow):
    """How much a method overfits compared with the control, over all common pairs."""

    gap: float  # train minus dev, mean over the pairs
    reference_gap: float
    train: float  # differences of means
    dev: float


@dataclass(frozen=True)
class Section:
    """Everything about one model under one protocol. Coverages are None without a study."""

    model: str
    protocol: str
    presets: tuple[str, ...]
    methods: tuple[MethodRow, ...]
    ablations: tuple[MethodRow, ...]
    pooled: tuple[PooledRow, ...]
    learned_tasks: tuple[str, ...]  # those on which the control beats a constant answer
    learned: tuple[PooledRow, ...]  # on these tasks alone; empty if they are all or none
    gaps: tuple[GapRow, ...]
    notes: tuple[str, ...]
    coverage: Coverage | None
    methods_coverage: Coverage | None
    ablations_coverage: Coverage | None

    @property
    def place(self) -> tuple[str, str]:
        """Model and protocol."""
        return self.model, self.protocol

    @property
    def rows(self) -> list[MethodRow]:
        """Methods and ablations by task, each once."""
        known = {(row.task, row.method) for row in self.methods}
        others = [row for row in self.ablations if (row.task, row.method) not in known]
        return sorted([*self.methods, *others], key=lambda row: row.task)

    @property
    def missing(self) -> tuple[str, ...]:
        """The wanted runs that are not there."""
        return () if self.coverage is None else self.coverage.missing


@dataclass(frozen=True)
class Report:
    """The content of all tables."""

    tasks: tuple[TaskRow, ...]
    sections: tuple[Section, ...]
    runs: int
    starts: int
    left_out: tuple[LeftOut, ...]


def analyse(collection: Collection) -> Report:
    """Return the rows of all tables."""
    grouped = group(collection.runs, lambda run: (run.model, run.protocol))
    places = sorted({*grouped, *(key[:2] for key in collection.wanted)})
    sections = tuple(
        _section(
            place,
            tuple(preset for *other, preset in collection.presets if tuple(other) == place),
            grouped.get(place, []),
            [key for key in collection.wanted if key[:2] == place],
        )
        for place in places
    )
    tasks = tuple(_task_rows(collection.runs))
    return Report(tasks, sections, len(collection.runs), collection.starts, collection.left_out)


def _section(
    place: tuple[str, str],
    presets: tuple[str, ...],
    runs: Sequence[RunRecord],
    wanted: Sequence[Key],
) -> Section:
    cells, found = make_cells(runs), {run.key for run in runs}
    names = {run.method for run in runs}
    ablations = ordered(filter(is_ablation, names), ABLATIONS)
    methods = ordered(names - set(ablations))
    rivals = [name for name in methods if name != SUBJECT]
    rivals.sort(key=lambda name: name != CONTROL)  # the control comes first
    learned_tasks, learned = _learned(cells, rivals)
    # Of the ablations, and of the subject in the blocks that have one.
    blocks = {(key[2], key[4]) for key in wanted if is_ablation(key[3])}
    with_ablations = [
        key
        for key in wanted
        if (key[2], key[4]) in blocks and (is_ablation(key[3]) or key[3] == SUBJECT)
    ]
    return Section(
        *place,
        presets,
        methods=tuple(_method_rows(cells, methods, CONTROL)),
        ablations=tuple(_method_rows(cells, [SUBJECT, *ablations], SUBJECT)) if ablations else (),
        pooled=(*_pooled_rows(cells, rivals), *_pooled_rows(cells, ablations)),
        learned_tasks=learned_tasks,
        learned=learned,
        gaps=tuple(_gap_rows(cells, [*methods, *ablations])),
        notes=tuple(find_notes(cells, place[1])),
        coverage=cover(wanted, found),
        methods_coverage=cover([key for key in wanted if not is_ablation(key[3])], found),
        ablations_coverage=cover(with_ablations, found),
    )


def _method_rows(cells: Cells, methods: Sequence[str], reference: str) -> Iterable[MethodRow]:
    for task, of_task in cells.items():
        present = [name for name in methods if name in of_task]
        family = {
            name: differences
            for name in present
            if name != reference and (differences := dev_differences(of_task, name, reference))
        }
        comparisons = compare(family)
        seeds = {seed for name in present for seed in of_task[name].runs}
        for name in present:
            cell = of_task[name]
            collapse = tuple(find_collapse(cell))
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
                collapse=collapse,
                flags=(*collapse, *find_flags(cell, of_task.get(SUBJECT), seeds)),
                published=published(task, name),
                cost=_cost(cell),
            )


def _cost(cell: Cell) -> Cost:
    return Cost(
        cell.mean(lambda run: run.rewards_asked),
        cell.mean(lambda run: run.rewards_computed),
        cell.mean(lambda run: run.tuning_steps),
        cell.mean(lambda run: run.scout_steps),
        cell.mean(lambda run: run.seconds),
        cell.mean(lambda run: run.times.get("first", 0.0)),
    )


def _pooled_rows(cells: Cells, rivals: Iterable[str]) -> Iterable[PooledRow]:
    """Compare the subject with other methods over all tasks, as one family."""
    pairs = {
        rival: {
            task: differences
            for task, of_task in cells.items()
            if (differences := dev_differences(of_task, SUBJECT, rival))
        }
        for rival in rivals
    }
    family = {
        rival: [each for differences in of_rival.values() for each in differences]
        for rival, of_rival in pairs.items()
        if of_rival
    }
    for rival, comparison in compare(family).items():
        yield PooledRow(SUBJECT, rival, tuple(pairs[rival]), comparison)


def _learned(cells: Cells, rivals: Sequence[str]) -> tuple[tuple[str, ...], tuple[PooledRow, ...]]:
    """Return the tasks that the control has learned, and the comparisons on them."""
    compared = {
        task: of_task for task, of_task in cells.items() if common_seeds(of_task, SUBJECT, CONTROL)
    }
    learned = {
        task: of_task
        for task, of_task in compared.items()
        if of_task[CONTROL].mean(lambda run: run.above_constant) > 0
    }
    if len(learned) in (0, len(compared)):
        return tuple(learned), ()
    others = [name for name in rivals if name != CONTROL]
    return tuple(learned), (*_pooled_rows(learned, [CONTROL]), *_pooled_rows(learned, others))


def _gap_rows(cells: Cells, methods: Sequence[str]) -> Iterable[GapRow]:
    """Compare train minus dev of each method with the control's, as one family."""
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
        """Return the values of a method, or of the control, in the pairs of that method."""
        found = {task: cells[task][name].per_seed(value) for task in pairs[method]}
        return [found[task][seed] for task, seeds in pairs[method].items() for seed in seeds]

    family = {
        method: [
            own - other
            for own, other in zip(
                values(method, method, gap_points), values(CONTROL, method, gap_points), strict=True
            )
        ]
        for method in pairs
    }
    for method, comparison in compare(family).items():
        means = [
            (fmean(values(method, method, value)), fmean(values(CONTROL, method, value)))
            for value in (gap_points, train_points, dev_points)
        ]
        (gap, reference_gap), (train, control_train), (dev, control_dev) = means
        yield GapRow(
            method,
            CONTROL,
            tuple(pairs[method]),
            comparison,
            gap,
            reference_gap,
            train - control_train,
            dev - control_dev,
        )


def _task_rows(runs: Sequence[RunRecord]) -> Iterable[TaskRow]:
    grouped = group(
        runs, lambda run: (run.task, run.metric, run.labels, run.train_rows, run.dev_rows)
    )
    for facts, of_task in sorted(grouped.items()):
        shares = [100 * run.majority for run in of_task if run.majority is not None]
        yield TaskRow(*facts, (min(shares), max(shares)) if shares else None)
