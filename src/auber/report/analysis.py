"""Runs to rows: each method on each task over its seeds, and the comparisons, each within one model and one protocol.

Scores are in points from here on (the metric times 100). Several draws of one seed are averaged before anything else, so
that a seed counts once. A comparison is made on the seeds two methods have in common, as method minus reference. A family
of comparisons, corrected together, is what one table asks of one set of pairs: the methods of one task against
`original+tuning`; the ablations of one task against `auber`; the pooled comparisons of `auber`; those with its ablations;
the pooled train minus dev of every method against that of `original+tuning`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

from auber.report.collect import Collection
from auber.report.coverage import Coverage, Key, cover
from auber.report.folders import LeftOut
from auber.report.published import Published, published
from auber.report.record import RunRecord
from auber.stats import Comparison, Summary, compare, summary

Group = TypeVar("Group")

CONTROL = "original+tuning"
SUBJECT = "auber"

# The order of the paper's tables; methods that are not named here follow by name.
METHODS = ("original", CONTROL, SUBJECT, "random", "confidence", "michel", "voita", "greedy", "exhaustive")
ABLATIONS = ("auber-query", "auber-key", "auber-l2", "auber-reverse")

CONTROLS = ("original", CONTROL)  # they remove nothing

# These are to have the heads and the tunings of the run they are compared with.
_MATCHED = ("random", "confidence", "michel", "voita")

# Settings that may differ between the runs of one method: they choose the run, or where it was computed.
_FREE_SETTINGS = {"seed", "random.draw", "device", "precision", "threads"}
# Settings that all methods of a task must share for their scores to be comparable; a run that begins with a finished start
# says so in first.when and in nothing else.
_SHARED_SETTINGS = ("first.", "layer.", "last.", "reward.", "max_length")


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
    seconds: float


@dataclass(frozen=True)
class MethodRow:
    """One method on one task, over its seeds."""

    task: str
    method: str
    seeds: tuple[int, ...]
    draws: int  # the most draws a seed has
    removed: Summary
    dev: Summary
    train: Summary
    gap: Summary
    reference: str | None  # what it is compared with; None for the reference itself
    comparison: Comparison | None  # None without a seed in common
    collapse: tuple[str, ...]  # in how many runs the score is that of a constant answer
    flags: tuple[str, ...]  # all that a reader must know before believing the row, the collapse among it
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
    methods: tuple[MethodRow, ...]
    ablations: tuple[MethodRow, ...]
    pooled: tuple[PooledRow, ...]
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
    grouped = _grouped(collection.runs, lambda run: (run.model, run.protocol))
    places = sorted({*grouped, *((model, protocol) for model, protocol, *_ in collection.wanted)})
    sections = tuple(
        _section(*place, grouped.get(place, []), [key for key in collection.wanted if key[:2] == place])
        for place in places
    )
    return Report(_task_rows(collection.runs), sections, len(collection.runs), collection.starts, collection.left_out)


@dataclass(frozen=True)
class _Cell:
    """The runs of one method on one task, by seed."""

    task: str
    method: str
    runs: Mapping[int, Sequence[RunRecord]]

    def per_seed(self, value: Callable[[RunRecord], float]) -> dict[int, float]:
        """The mean over the draws of each seed."""
        return {seed: fmean(map(value, draws)) for seed, draws in self.runs.items()}

    def summary(self, value: Callable[[RunRecord], float]) -> Summary:
        return summary(list(self.per_seed(value).values()))

    def mean(self, value: Callable[[RunRecord], float]) -> float:
        return fmean(self.per_seed(value).values())

    @property
    def every(self) -> list[RunRecord]:
        return [run for draws in self.runs.values() for run in draws]


_Cells = Mapping[str, Mapping[str, _Cell]]  # task -> method -> runs


def _section(model: str, protocol: str, runs: Sequence[RunRecord], wanted: Sequence[Key]) -> Section:
    cells: dict[str, dict[str, _Cell]] = {}
    for task, of_task in sorted(_grouped(runs, lambda run: run.task).items()):
        cells[task] = {
            method: _Cell(task, method, dict(sorted(_grouped(of_method, lambda run: run.seed).items())))
            for method, of_method in _grouped(of_task, lambda run: run.method).items()
        }
    names = {run.method for run in runs}
    found = {run.key for run in runs}
    ablations = _ordered(filter(_is_ablation, names), ABLATIONS)
    methods = _ordered(names - set(ablations), METHODS)
    rivals = [name for name in methods if name != SUBJECT]
    rivals.sort(key=lambda name: name != CONTROL)  # the control is the first question
    return Section(
        model,
        protocol,
        methods=tuple(_method_rows(cells, methods, CONTROL)),
        ablations=tuple(_method_rows(cells, [SUBJECT, *ablations], SUBJECT)) if ablations else (),
        pooled=(*_pooled_rows(cells, rivals), *_pooled_rows(cells, ablations)),
        gaps=tuple(_gap_rows(cells, [*methods, *ablations])),
        notes=tuple(_notes(cells, protocol)),
        coverage=cover(wanted, found),
        methods_coverage=cover([key for key in wanted if not _is_ablation(key[3])], found),
        ablations_coverage=_ablations_coverage(wanted, found),
    )


def _is_ablation(method: str) -> bool:
    return method.startswith(f"{SUBJECT}-")


def _ablations_coverage(wanted: Sequence[Key], found: set[Key]) -> Coverage | None:
    """Of the ablations, and of the subject in the blocks that have one to compare with it."""
    blocks = {(task, seed) for _, _, task, method, seed, _ in wanted if _is_ablation(method)}
    keys = [key for key in wanted if (key[2], key[4]) in blocks and (_is_ablation(key[3]) or key[3] == SUBJECT)]
    return cover(keys, found)


def _method_rows(cells: _Cells, methods: Sequence[str], reference: str) -> Iterable[MethodRow]:
    for task, of_task in cells.items():
        present = [name for name in methods if name in of_task]
        family = {
            name: list(differences.values())
            for name in present
            if name != reference and (differences := _differences(of_task, name, reference))
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
                dev=cell.summary(_dev),
                train=cell.summary(_train),
                gap=cell.summary(_gap),
                reference=None if name == reference else reference,
                comparison=comparisons.get(name),
                collapse=tuple(_collapse(cell)),
                flags=(*_collapse(cell), *_flags(cell, of_task.get(SUBJECT), seeds)),
                published=published(task, name),
                cost=Cost(
                    cell.mean(lambda run: run.rewards_asked),
                    cell.mean(lambda run: run.rewards_computed),
                    cell.mean(lambda run: run.tuning_steps),
                    cell.mean(lambda run: run.seconds),
                ),
            )


def _pooled_rows(cells: _Cells, rivals: Sequence[str]) -> Iterable[PooledRow]:
    """The subject against each of some methods, over all tasks: one family."""
    pairs = {
        rival: {task: _differences(of_task, SUBJECT, rival) for task, of_task in cells.items()} for rival in rivals
    }
    family = {
        rival: [difference for differences in of_rival.values() for difference in differences.values()]
        for rival, of_rival in pairs.items()
    }
    comparisons = compare({rival: differences for rival, differences in family.items() if differences})
    for rival, comparison in comparisons.items():
        tasks = tuple(task for task, differences in pairs[rival].items() if differences)
        yield PooledRow(SUBJECT, rival, tasks, comparison)


def _gap_rows(cells: _Cells, methods: Sequence[str]) -> Iterable[GapRow]:
    """Train minus dev of each method against the control's, over all tasks: one family."""
    pairs = {
        method: {task: seeds for task, of_task in cells.items() if (seeds := _common_seeds(of_task, method, CONTROL))}
        for method in methods
        if method != CONTROL
    }
    pairs = {method: tasks for method, tasks in pairs.items() if tasks}

    def values(name: str, method: str, value: Callable[[RunRecord], float]) -> list[float]:
        """Of a method, or of the control, in the pairs of that method."""
        found = {task: cells[task][name].per_seed(value) for task in pairs[method]}
        return [found[task][seed] for task, seeds in pairs[method].items() for seed in seeds]

    family = {
        method: [a - b for a, b in zip(values(method, method, _gap), values(CONTROL, method, _gap), strict=True)]
        for method in pairs
    }
    for method, comparison in compare(family).items():
        yield GapRow(
            method,
            CONTROL,
            tuple(pairs[method]),
            gap=fmean(values(method, method, _gap)),
            reference_gap=fmean(values(CONTROL, method, _gap)),
            train=fmean(values(method, method, _train)) - fmean(values(CONTROL, method, _train)),
            dev=fmean(values(method, method, _dev)) - fmean(values(CONTROL, method, _dev)),
            comparison=comparison,
        )


def _differences(of_task: Mapping[str, _Cell], method: str, reference: str) -> dict[int, float]:
    """By seed, the dev score of a method minus the reference's, where both were run."""
    seeds = _common_seeds(of_task, method, reference)
    if not seeds:
        return {}
    own, other = of_task[method].per_seed(_dev), of_task[reference].per_seed(_dev)
    return {seed: own[seed] - other[seed] for seed in seeds}


def _common_seeds(of_task: Mapping[str, _Cell], method: str, reference: str) -> list[int]:
    """The seeds of a task that two methods have in common."""
    if method not in of_task or reference not in of_task:
        return []
    return [seed for seed in of_task[method].runs if seed in of_task[reference].runs]


def _dev(run: RunRecord) -> float:
    return 100 * run.dev


def _train(run: RunRecord) -> float:
    return 100 * run.train


def _gap(run: RunRecord) -> float:
    return 100 * (run.train - run.dev)


def _collapse(cell: _Cell) -> Iterable[str]:
    """In how many runs the score is that of a constant answer."""
    runs = cell.every
    one_class = sum(run.one_class for run in runs)
    if one_class:
        yield f"one class predicted in {one_class} of {_count(len(runs), 'run')}"
    equal = sum(run.equals_majority and not run.one_class for run in runs)
    if equal:
        yield f"equals the majority class in {equal} of {_count(len(runs), 'run')}"


def _flags(cell: _Cell, subject: _Cell | None, seeds: set[int]) -> Iterable[str]:
    """Which runs are missing or had other conditions."""
    missing = sorted(seeds - set(cell.runs))
    if missing:
        yield f"no run of seed {', '.join(map(str, missing))}"
    draws = {len(of_seed) for of_seed in cell.runs.values()}
    if len(draws) > 1:
        yield f"{min(draws)} to {max(draws)} draws a seed"
    if subject is not None:
        yield from _mismatches(cell, subject)


def _mismatches(cell: _Cell, subject: _Cell) -> Iterable[str]:
    """Where a method that is matched with the subject's run of the same seed had other heads or other tunings."""
    pairs = [(run, subject.runs[run.seed][0]) for run in cell.every if run.seed in subject.runs]
    if cell.method in _MATCHED and any(run.removed != other.removed for run, other in pairs):
        yield f"P is not {SUBJECT}'s"
    if cell.method in (*_MATCHED, CONTROL) and any(run.tuned_layers != other.tuned_layers for run, other in pairs):
        yield f"tuned after other layers than {SUBJECT}"


def _notes(cells: _Cells, protocol: str) -> Iterable[str]:
    shared: list[str] = []
    own_rows: list[str] = []
    for task, of_task in cells.items():
        runs = [run for cell in of_task.values() for run in cell.every]
        if len({run.seed for run in runs}) > 1:
            (shared if len({run.data for run in runs}) == 1 else own_rows).append(task)
    if shared:
        yield (
            f"The seeds of {', '.join(shared)} share one dev set: an interval speaks of other seeds, not of other rows."
        )
    if own_rows:
        yield f"The rows of {', '.join(own_rows)} differ from seed to seed."
    for task, of_task in cells.items():
        yield from _several_starts(task, of_task, protocol)
        for method, cell in of_task.items():
            draws = max(map(len, cell.runs.values()))
            if draws > 1:
                yield f"{task}, {method}: a seed's score is the mean of its draws, up to {draws}."
            yield from _differing_settings(
                f"{task}, {method}: its runs", cell.every, lambda key: key not in _FREE_SETTINGS
            )
        one_each = [cell.every[0] for cell in of_task.values()]
        yield from _differing_settings(
            f"{task}: its methods", one_each, lambda key: key.startswith(_SHARED_SETTINGS) and key != "first.when"
        )


def _several_starts(task: str, of_task: Mapping[str, _Cell], protocol: str) -> Iterable[str]:
    """Where runs of one seed did not begin with the same fine-tuned weights, their difference is not the method's alone."""
    # Under heldout a control has a first tuning of its own.
    counted = [cell for cell in of_task.values() if protocol == "seen" or cell.method not in CONTROLS]
    starts: dict[int, set[str]] = defaultdict(set)
    for cell in counted:
        for run in cell.every:
            starts[run.seed].add(run.start)
    seeds = [str(seed) for seed, found in sorted(starts.items()) if len(found) > 1]
    if seeds:
        yield f"Careful: {task}, seed {', '.join(seeds)}: its methods did not begin with the same fine-tuned weights."


def _differing_settings(which: str, runs: Sequence[RunRecord], counts: Callable[[str], bool]) -> Iterable[str]:
    keys = {key for run in runs for key in run.config if counts(key)}
    differing = sorted(key for key in keys if len({repr(run.config.get(key)) for run in runs}) > 1)
    if differing:
        yield f"Careful: {which} differ in {', '.join(differing)}."


def _task_rows(runs: Sequence[RunRecord]) -> tuple[TaskRow, ...]:
    grouped = _grouped(runs, lambda run: (run.task, run.metric, run.labels, run.train_rows, run.dev_rows))
    rows = []
    for (task, metric, labels, train_rows, dev_rows), of_task in sorted(grouped.items()):
        shares = [100 * run.majority for run in of_task if run.majority is not None]
        rows.append(TaskRow(task, metric, labels, train_rows, dev_rows, (min(shares), max(shares)) if shares else None))
    return tuple(rows)


def _ordered(names: Iterable[str], order: Sequence[str]) -> list[str]:
    return sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name))


def _grouped(runs: Iterable[RunRecord], key: Callable[[RunRecord], Group]) -> dict[Group, list[RunRecord]]:
    groups: dict[Group, list[RunRecord]] = defaultdict(list)
    for run in runs:
        groups[key(run)].append(run)
    return dict(groups)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
