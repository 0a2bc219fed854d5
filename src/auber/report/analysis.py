"""The comparisons of a report: each method on each task over its seeds, and paired differences.

Scores are in points, the metric times 100. Draws of one seed are averaged first, so that every seed
counts once. Models and protocols are never mixed. Differences are method minus reference on common
seeds. These comparisons form one family each and are corrected together: the methods of one task
against the control; the ablations of one task against the subject; the subject against all other
methods, and against its ablations, over all pairs; the gaps of all methods against the control's.
On the tasks that the control has learned, the subject against the control stands alone, and
against the other methods forms a family.

Each comparison is a row whose keys are the columns of the tables. Intervals are clipped to the
range of the metric.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import pandas as pd

from auber.metrics.statistics import Comparison, Summary, compare, summary, verdict
from auber.report.caveats import find_collapse, find_flags, find_notes
from auber.report.published import published
from auber.report.records import (
    CONTROL,
    CONTROLS,
    SUBJECT,
    RunRecord,
    group,
    is_ablation,
    ordered,
)
from auber.report.runs import LeftOut, Source, find_missing

PAIRS = "(task, seed) pairs"
COSTS = {
    "rewards asked": "rewards_asked",
    "rewards computed": "rewards_computed",
    "tuning steps": "tuning_steps",
    "fold model steps": "scout_steps",
    "seconds": "seconds",
}
_MEANS = ["dev", "train", "gap", "removed", "total", "above_constant", "own_seconds", "low"]
_MEANS += COSTS.values()
# The lowest scores of metrics in points; none of another is known. The highest score is 100.
_LOWEST = {
    **dict.fromkeys(
        ("accuracy", "f1", "token_accuracy", "entity_f1", "span_exact", "span_f1"), 0.0
    ),
    **dict.fromkeys(("matthews", "pearson", "spearman"), -100.0),
}

Row = dict[str, Any]


@dataclass(frozen=True)
class Section:
    """Everything about one model under one protocol."""

    model: str
    protocol: str
    presets: Sequence[str] = ()  # of the studies
    blocks: int = 0  # that studies ask for, each a task and a seed
    missing: Sequence[str] = ()  # a line for each block that lacks runs
    subject: str = SUBJECT  # the method that is compared with all others
    methods: Sequence[Row] = ()
    ablations: Sequence[Row] = ()
    pooled: Sequence[Row] = ()
    # On the tasks alone where the control beats a constant answer; empty if they are all or none.
    learned: Sequence[Row] = ()
    gaps: Sequence[Row] = ()
    notes: Sequence[str] = ()

    @property
    def name(self) -> str:
        """Model and protocol."""
        return f"{self.model}, protocol {self.protocol}"

    @property
    def rows(self) -> list[Row]:
        """Methods and ablations by task, each once."""
        ablations = [row for row in self.ablations if is_ablation(row["method"])]
        return sorted([*self.methods, *ablations], key=lambda row: str(row["task"]))

    @property
    def label(self) -> str | None:
        """How many blocks are complete, if some are not."""
        if not self.missing:
            return None
        complete = self.blocks - len(self.missing)
        return f"incomplete: {complete} of {self.blocks} blocks so far"


@dataclass(frozen=True)
class Report:
    """The content of all tables."""

    tasks: Sequence[Row]
    sections: Sequence[Section]
    runs: int
    starts: int
    left_out: Sequence[LeftOut]


def analyse(source: Source) -> Report:
    """Compare the methods, for each model under each protocol."""
    runs = group(source.runs, lambda run: run.key[:2])
    wanted = group(source.wanted, lambda key: key[:2])
    sections = []
    for model, protocol in sorted({*runs, *wanted}):
        studies = [each for each in source.studies.values() if each.model == model]
        records, keys = (of.get((model, protocol), []) for of in (runs, wanted))
        sections.append(
            Section(
                model,
                protocol,
                sorted({study.preset for study in studies if protocol in study.protocols}),
                len({(task, seed) for _, _, task, _, seed, _ in keys}),
                find_missing(keys, {record.key for record in records}),
                **(_compare_methods(records, protocol) if records else {}),
            )
        )
    starts = len(source.records) - len(source.runs)
    return Report(_task_rows(source.runs), sections, len(source.runs), starts, source.left_out)


def _compare_methods(records: Iterable[RunRecord], protocol: str) -> dict[str, Any]:
    """Return the comparisons of a section."""
    runs = _make_frame(records)
    means = runs.groupby(["task", "method", "seed"])[_MEANS].mean()
    dev = means["dev"].unstack("method")
    methods = ordered(name for name in dev if not is_ablation(name))
    ablations = ordered(name for name in dev if is_ablation(name))
    chosen = [name for name in methods if name not in (*CONTROLS, "random")]
    subject = SUBJECT if SUBJECT in dev else next(iter(chosen), SUBJECT)
    rivals = [name for name in methods if name != subject]
    rivals.sort(key=lambda name: name != CONTROL)  # the control comes first
    with_subject = [SUBJECT, *ablations] if ablations else []
    low = runs["low"].min()
    return {
        "subject": subject,
        "methods": list(_method_rows(runs, means, methods, CONTROL, subject)),
        "ablations": list(_method_rows(runs, means, with_subject, SUBJECT, subject)),
        "pooled": [
            *_pooled_rows(dev, subject, rivals, low),
            *_pooled_rows(dev, subject, ablations, low),
        ],
        "learned": list(_learned(means, dev, subject, rivals, low)),
        "gaps": list(_gap_rows(means, [*methods, *ablations], low)),
        "notes": tuple(find_notes(runs, protocol)),
    }


def _make_frame(records: Iterable[RunRecord]) -> pd.DataFrame:
    """Return a row for each run with its scores in points."""
    frame = pd.DataFrame([
        {
            **dict(record),
            "dev": 100 * record.dev,
            "train": 100 * record.train,
            "gap": 100 * (record.train - record.dev),
            "total": record.layers * record.heads,
            "low": _LOWEST.get(record.metric, -math.inf),
            "above_constant": record.above_constant,
            "equals_majority": record.equals_majority,
            "seconds": record.seconds,
            # Most runs share the first tuning.
            "own_seconds": record.seconds - record.times.get("first", 0.0),
        }
        for record in records
    ])  # fmt: skip
    return frame.astype(dict.fromkeys([*_MEANS, "majority"], float))


def _differences(scores: pd.DataFrame, method: str, reference: str) -> pd.Series[float]:
    """Return method minus reference for each pair of a task and a seed that both have."""
    columns = scores.reindex(columns=[method, reference])
    return (columns[method] - columns[reference]).dropna()


def _compare(pairs: Mapping[str, pd.Series[float]], width: float) -> dict[str, Comparison]:
    """Compare as one family; methods without a pair are left out.

    No difference is larger than `width`, nor is an end of its interval.
    """
    found = compare({name: each.tolist() for name, each in pairs.items() if len(each)})
    return {
        name: replace(
            each,
            paired=replace(each.paired, differences=_clip(each.paired.differences, -width, width)),
        )
        for name, each in found.items()
    }


def summarise(scores: Sequence[float], metric: str) -> Summary:
    """Return the summary of scores in points; its interval ends where the metric does."""
    return _clip(summary(scores), _LOWEST.get(metric, -math.inf), 100)


def _clip(found: Summary, low: float, high: float) -> Summary:
    """Clip an interval to the possible values."""
    if found.low is None or found.high is None:
        return found
    return replace(found, low=max(found.low, low), high=min(found.high, high))


def _columns(name: str, found: Summary) -> Row:
    """Return the columns of a mean."""
    return {name: found.mean, f"{name} deviation": found.deviation}


def _describe(comparison: Comparison | None, counted: str) -> Row:
    """Return the columns of a comparison."""
    if comparison is None:
        return {"significant": False, "verdict": None}
    found = comparison.paired.differences
    return {
        "pairs": found.n,
        "difference": found.mean,
        "difference interval low": found.low,
        "difference interval high": found.high,
        "p": comparison.p,
        "p of": "sign flips" if comparison.exact else "t",
        "corrected p": comparison.corrected,
        "smallest exact p": comparison.paired.smallest_p,
        "comparisons": comparison.family,
        "detectable": comparison.paired.detectable,
        "significant": comparison.significant,
        "verdict": verdict(comparison, counted=counted),
    }


def _method_rows(
    runs: pd.DataFrame, means: pd.DataFrame, methods: Sequence[str], reference: str, subject: str
) -> Iterable[Row]:
    for task, of_task in runs.groupby("task"):
        present = [name for name in methods if name in set(of_task["method"])]
        dev = means.loc[task, "dev"].unstack("method")
        comparisons = _compare(
            {name: _differences(dev, name, reference) for name in present if name != reference},
            100 - of_task["low"].iloc[0],
        )
        seeds = set(of_task.loc[of_task["method"].isin(present), "seed"])
        of_subject = of_task[of_task["method"] == subject]
        for name in present:
            own, of_seeds = of_task[of_task["method"] == name], means.loc[task, name]
            scores = summarise(of_seeds["dev"].tolist(), of_task["metric"].iloc[0])
            collapse = tuple(find_collapse(own))
            comparison = _describe(comparisons.get(name), "seeds")
            if comparison["verdict"] is None and name != reference:
                comparison["verdict"] = f"not compared: no run of {reference} with the same seed"
            paper_score, paper_removed = published(task, name)
            yield {
                "task": task,
                "method": name,
                "seeds": scores.n,
                **_columns("P", summary(of_seeds["removed"].tolist())),
                **_columns("dev", scores),
                "dev interval low": scores.low,
                "dev interval high": scores.high,
                **_columns("train", summary(of_seeds["train"].tolist())),
                **_columns("gap", summary(of_seeds["gap"].tolist())),
                **comparison,
                "reference": None if name == reference else reference,
                "collapse": collapse,  # how many runs score like a constant answer
                "flags": (*collapse, *find_flags(own, of_subject, seeds)),
                "draws": int(own["seed"].value_counts().max()),
                "heads": fmean(of_seeds["total"]),
                "own seconds": fmean(of_seeds["own_seconds"]),
                "published P": paper_removed,
                "published dev": paper_score,
                **{title: fmean(of_seeds[column]) for title, column in COSTS.items()},
            }


def _pooled_rows(
    dev: pd.DataFrame, subject: str, rivals: Iterable[str], low: float
) -> Iterable[Row]:
    """Compare the subject with other methods over all tasks, as one family."""
    pairs = {rival: _differences(dev, subject, rival) for rival in rivals}
    for rival, comparison in _compare(pairs, 100 - low).items():
        yield {
            "method": subject,
            "against": rival,
            "tasks": [*pairs[rival].index.unique("task")],
            **_describe(comparison, PAIRS),
        }


def _learned(
    means: pd.DataFrame, dev: pd.DataFrame, subject: str, rivals: Sequence[str], low: float
) -> Iterable[Row]:
    """Compare the subject with other methods on the tasks that the control has learned."""
    compared = _differences(dev, subject, CONTROL).index.unique("task")
    learned = [task for task in compared if fmean(means.loc[(task, CONTROL), "above_constant"]) > 0]
    if 0 < len(learned) < len(compared):
        dev = dev.loc[learned]
        yield from _pooled_rows(dev, subject, [CONTROL], low)
        yield from _pooled_rows(dev, subject, rivals[1:], low)


def _gap_rows(means: pd.DataFrame, methods: Sequence[str], low: float) -> Iterable[Row]:
    """Compare train minus dev of each method with the control's, as one family."""
    scores = {name: means[name].unstack("method") for name in ("gap", "train", "dev")}
    rivals = [method for method in methods if method != CONTROL]
    pairs = {method: _differences(scores["gap"], method, CONTROL) for method in rivals}
    for method, comparison in _compare(pairs, 2 * (100 - low)).items():
        common = pairs[method].index
        own, control = (
            {name: fmean(of.loc[common, each]) for name, of in scores.items()}
            for each in (method, CONTROL)
        )
        row = _describe(comparison, PAIRS)
        words = row["verdict"].replace("ahead by", "larger by", 1)
        yield {
            "method": method,
            "against": CONTROL,
            "tasks": [*common.unique("task")],
            **row,
            "gap": own["gap"],
            f"gap of {CONTROL}": control["gap"],
            "train difference": own["train"] - control["train"],
            "dev difference": own["dev"] - control["dev"],
            "verdict": words.replace("behind by", "smaller by", 1),
        }


def _task_rows(runs: Iterable[RunRecord]) -> list[Row]:
    columns = ("task", "metric", "classes", "train rows", "dev rows")
    grouped = group(
        runs, lambda run: (run.task, run.metric, run.labels, run.train_rows, run.dev_rows)
    )
    rows = []
    for facts, of_task in sorted(grouped.items()):
        shares = [100 * run.majority for run in of_task if run.majority is not None]
        low, high = (min(shares), max(shares)) if shares else (None, None)
        ends = {"dev majority class low": low, "dev majority class high": high}
        rows.append({**dict(zip(columns, facts, strict=True)), **ends})
    return rows
