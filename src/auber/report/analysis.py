"""Rows of all tables: each method on each task over its seeds, and paired comparisons.

Scores are in points, the metric times 100. Draws of one seed are averaged first, so that every seed
counts once. Models and protocols are never mixed. Differences are method minus reference on common
seeds. These comparisons form one family each and are corrected together: the methods of one task
against the control; the ablations of one task against the subject; the subject against all other
methods, and against its ablations, over all pairs; the gaps of all methods against the control's.
On the tasks that the control has learned, the subject against the control stands alone, and
against the other methods forms a family.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from statistics import fmean

import pandas as pd

from auber.metrics.statistics import Comparison, Summary, compare, summary, verdict
from auber.report.caveats import find_collapse, find_flags, find_notes
from auber.report.published import Published, published
from auber.report.records import CONTROL, SUBJECT, Key, RunRecord, group, is_ablation, ordered
from auber.report.runs import Collection, Coverage, LeftOut, cover

PAIRS = "(task, seed) pairs"


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


_COSTS = tuple(field.name for field in fields(Cost))
_MEANS = ["dev", "train", "gap", "removed", "total_heads", "above_constant", *_COSTS]


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

    @property
    def verdict(self) -> str | None:
        """The comparison in words."""
        return None if self.comparison is None else verdict(self.comparison)


@dataclass(frozen=True)
class PooledRow:
    """One comparison over all pairs of a task and a seed."""

    method: str
    reference: str
    tasks: tuple[str, ...]
    comparison: Comparison

    @property
    def verdict(self) -> str:
        """The comparison in words."""
        return verdict(self.comparison, counted=PAIRS)

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return self.comparison.paired.differences.n


@dataclass(frozen=True)
class GapRow(PooledRow):
    """How much a method overfits compared with the control, over all common pairs."""

    gap: float  # train minus dev, mean over the pairs
    reference_gap: float
    train: float  # differences of means
    dev: float

    @property
    def verdict(self) -> str:
        """The comparison of gaps in words."""
        words = super().verdict
        return words.replace("ahead by", "larger by", 1).replace("behind by", "smaller by", 1)


@dataclass(frozen=True)
class Section:
    """Everything about one model under one protocol. The coverage is None without a study."""

    model: str
    protocol: str
    presets: tuple[str, ...]
    methods: tuple[MethodRow, ...]
    ablations: tuple[MethodRow, ...]
    pooled: tuple[PooledRow, ...]
    # On the tasks alone where the control beats a constant answer; empty if they are all or none.
    learned: tuple[PooledRow, ...]
    gaps: tuple[GapRow, ...]
    notes: tuple[str, ...]
    coverage: Coverage | None

    @property
    def rows(self) -> list[MethodRow]:
        """Methods and ablations by task, each once."""
        ablations = [row for row in self.ablations if is_ablation(row.method)]
        return sorted([*self.methods, *ablations], key=lambda row: row.task)

    @property
    def missing(self) -> tuple[str, ...]:
        """The wanted runs that are not there."""
        return () if self.coverage is None else self.coverage.missing

    @property
    def label(self) -> str | None:
        """How many blocks are there, if some are missing."""
        return None if self.coverage is None else self.coverage.label


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
    records: Sequence[RunRecord],
    wanted: Sequence[Key],
) -> Section:
    coverage = cover(wanted, {record.key for record in records})
    if not records:
        return Section(*place, presets, (), (), (), (), (), (), coverage)
    runs = _make_frame(records)
    means = runs.groupby(["task", "method", "seed"])[_MEANS].mean()
    dev = means["dev"].unstack("method")
    methods = ordered(name for name in dev if not is_ablation(name))
    ablations = ordered(name for name in dev if is_ablation(name))
    rivals = [name for name in methods if name != SUBJECT]
    rivals.sort(key=lambda name: name != CONTROL)  # the control comes first
    with_subject = [SUBJECT, *ablations] if ablations else []
    return Section(
        *place,
        presets,
        tuple(_method_rows(runs, means, methods, CONTROL)),
        tuple(_method_rows(runs, means, with_subject, SUBJECT)),
        (*_pooled_rows(dev, rivals), *_pooled_rows(dev, ablations)),
        tuple(_learned(means, dev, rivals)),
        tuple(_gap_rows(means, [*methods, *ablations])),
        tuple(find_notes(runs, place[1])),
        coverage,
    )


def _make_frame(records: Iterable[RunRecord]) -> pd.DataFrame:
    """Return a row for each run with its scores in points."""
    frame = pd.DataFrame([
        {
            **dict(record),
            "dev": 100 * record.dev,
            "train": 100 * record.train,
            "gap": 100 * (record.train - record.dev),
            "total_heads": record.layers * record.heads,
            "above_constant": record.above_constant,
            "equals_majority": record.equals_majority,
            "seconds": record.seconds,
            "first_seconds": record.times.get("first", 0.0),
        }
        for record in records
    ])  # fmt: skip
    return frame.astype(dict.fromkeys([*_MEANS, "majority"], float))


def _differences(scores: pd.DataFrame, method: str, reference: str) -> pd.Series[float]:
    """Return method minus reference for each pair of a task and a seed that both have."""
    columns = scores.reindex(columns=[method, reference])
    return (columns[method] - columns[reference]).dropna()


def _compare(pairs: dict[str, pd.Series[float]]) -> dict[str, Comparison]:
    """Compare as one family; methods without a pair are left out."""
    return compare({name: found.tolist() for name, found in pairs.items() if len(found)})


def _method_rows(
    runs: pd.DataFrame, means: pd.DataFrame, methods: Sequence[str], reference: str
) -> Iterable[MethodRow]:
    for task, of_task in runs.groupby("task"):
        present = [name for name in methods if name in set(of_task["method"])]
        dev = means.loc[task, "dev"].unstack("method")
        comparisons = _compare({
            name: _differences(dev, name, reference) for name in present if name != reference
        })  # fmt: skip
        seeds = set(of_task.loc[of_task["method"].isin(present), "seed"])
        subject = of_task[of_task["method"] == SUBJECT]
        for name in present:
            own, of_seeds = of_task[of_task["method"] == name], means.loc[task, name]
            collapse = tuple(find_collapse(own))
            yield MethodRow(
                task,
                name,
                seeds=tuple(of_seeds.index.tolist()),
                draws=int(own["seed"].value_counts().max()),
                removed=summary(of_seeds["removed"].tolist()),
                heads=fmean(of_seeds["total_heads"]),
                dev=summary(of_seeds["dev"].tolist()),
                train=summary(of_seeds["train"].tolist()),
                gap=summary(of_seeds["gap"].tolist()),
                reference=None if name == reference else reference,
                comparison=comparisons.get(name),
                collapse=collapse,
                flags=(*collapse, *find_flags(own, subject, seeds)),
                published=published(task, name),
                cost=Cost(*(fmean(of_seeds[column]) for column in _COSTS)),
            )


def _pooled_rows(dev: pd.DataFrame, rivals: Iterable[str]) -> Iterable[PooledRow]:
    """Compare the subject with other methods over all tasks, as one family."""
    pairs = {rival: _differences(dev, SUBJECT, rival) for rival in rivals}
    for rival, comparison in _compare(pairs).items():
        yield PooledRow(SUBJECT, rival, tuple(pairs[rival].index.unique("task")), comparison)


def _learned(means: pd.DataFrame, dev: pd.DataFrame, rivals: Sequence[str]) -> Iterable[PooledRow]:
    """Compare the subject with other methods on the tasks that the control has learned."""
    compared = _differences(dev, SUBJECT, CONTROL).index.unique("task")
    learned = [task for task in compared if fmean(means.loc[(task, CONTROL), "above_constant"]) > 0]
    if 0 < len(learned) < len(compared):
        dev = dev.loc[learned]
        yield from _pooled_rows(dev, [CONTROL])
        yield from _pooled_rows(dev, [name for name in rivals if name != CONTROL])


def _gap_rows(means: pd.DataFrame, methods: Sequence[str]) -> Iterable[GapRow]:
    """Compare train minus dev of each method with the control's, as one family."""
    scores = {name: means[name].unstack("method") for name in ("gap", "train", "dev")}
    pairs = {
        method: _differences(scores["gap"], method, CONTROL)
        for method in methods
        if method != CONTROL
    }
    for method, comparison in _compare(pairs).items():
        common = pairs[method].index
        own, control = (
            {name: fmean(of.loc[common, each]) for name, of in scores.items()}
            for each in (method, CONTROL)
        )
        yield GapRow(
            method,
            CONTROL,
            tuple(common.unique("task")),
            comparison,
            own["gap"],
            control["gap"],
            own["train"] - control["train"],
            own["dev"] - control["dev"],
        )


def _task_rows(runs: Iterable[RunRecord]) -> Iterable[TaskRow]:
    grouped = group(
        runs, lambda run: (run.task, run.metric, run.labels, run.train_rows, run.dev_rows)
    )
    for facts, of_task in sorted(grouped.items()):
        shares = [100 * run.majority for run in of_task if run.majority is not None]
        yield TaskRow(*facts, (min(shares), max(shares)) if shares else None)
