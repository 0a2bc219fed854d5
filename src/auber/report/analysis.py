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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import pandas as pd

from auber.config import Config
from auber.data.user_rows import OWN
from auber.metrics.statistics import Summary, compare, summary, verdict
from auber.report.records import (
    CONTROL,
    CONTROLS,
    MATCHED,
    SUBJECT,
    RunRecord,
    count,
    group,
    is_ablation,
    ordered,
)
from auber.report.runs import LeftOut, RunSet, find_missing

PAIRS = "(task, seed) pairs"
COSTS = {
    "rewards asked": "rewards_asked",
    "rewards computed": "rewards_computed",
    "tuning steps": "tuning_steps",
    "fold model steps": "scout_steps",
    "seconds": "seconds",
}
_MEANS = [
    *("dev", "train", "gap", "removed", "total", "above_constant", "own_seconds", "low"),
    *COSTS.values(),
]
# The lowest scores of metrics in points; none of another is known. The highest score is 100.
_LOWEST = {
    **dict.fromkeys(
        ("accuracy", "f1", "token_accuracy", "entity_f1", "span_exact", "span_f1"), 0.0
    ),
    **dict.fromkeys(("matthews", "pearson", "spearman"), -100.0),
}

# Settings that may differ between runs of one method: they name the run or the hardware.
_FREE_SETTINGS = {"seed", "random.draw", "device", "precision", "threads"}
# Settings that all methods of a task must share. Runs of a finished start differ in first.when.
_SHARED_SETTINGS = ("first.", "layer.", "last.", "reward.", "max_length")

# Protocols under which the controls start from other weights than the searches.
OTHER_START = {
    "heldout": "Under heldout the controls' first tuning also used the reward rows, so a "
    "difference to them measures pruning and holding rows back together."
}

_SAME_SIZE = 0.02  # shares of multiply-adds that differ by less are the same size

Row = dict[str, Any]


@dataclass(frozen=True)
class Section:
    """Everything about one model under one protocol."""

    model: str
    protocol: str
    name: str  # the model, and the protocol if it matters
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


def analyse(source: RunSet) -> Report:
    """Compare the methods, for each model under each protocol."""
    runs = group(source.runs, lambda run: run.key[:2])
    wanted = group(source.wanted, lambda key: key[:2])
    sections = []
    for model, protocol in sorted({*runs, *wanted}):
        studies = [each for each in source.studies.values() if each.model == model]
        records, keys = runs.get((model, protocol), []), wanted.get((model, protocol), [])
        sections.append(
            Section(
                model,
                protocol,
                _name_section(model, protocol, records, [*{*runs, *wanted}]),
                sorted({study.preset for study in studies if protocol in study.protocols}),
                len({(task, seed) for _, _, task, _, seed, _ in keys}),
                find_missing(keys, {record.key for record in records}),
                **(_compare_methods(records, protocol) if records else {}),
            )
        )
    starts = len(source.records) - len(source.runs)
    return Report(_task_rows(source.runs), sections, len(source.runs), starts, source.left_out)


def _name_section(
    model: str, protocol: str, records: Sequence[RunRecord], places: Sequence[tuple[str, str]]
) -> str:
    """Return the model, and the protocol where it matters or distinguishes sections."""
    is_alone = sum(place[0] == model for place in places) == 1
    is_searched = not records or any(run.rewards_asked for run in records)
    if is_alone and not is_searched and protocol != "heldout":
        return model
    return f"{model}, protocol {protocol}"


def _compare_methods(records: Iterable[RunRecord], protocol: str) -> dict[str, Any]:
    """Return the comparisons of a section."""
    runs = _make_frame(records)
    means = runs.groupby(["task", "method", "seed"])[_MEANS].mean()
    dev, gap = means["dev"].unstack("method"), means["gap"].unstack("method")
    width = 100 - runs["low"].min()
    methods = ordered(name for name in dev if not is_ablation(name))
    ablations = ordered(name for name in dev if is_ablation(name))
    chosen = [name for name in methods if name not in (*CONTROLS, "random")]
    subject = SUBJECT if SUBJECT in dev else next(iter(chosen), SUBJECT)
    rivals = [name for name in methods if name != subject]
    rivals.sort(key=lambda name: name != CONTROL)  # the control comes first
    with_subject = [SUBJECT, *ablations] if ablations else []
    gap_pairs = [(name, CONTROL) for name in (*methods, *ablations) if name != CONTROL]

    def against(names: Iterable[str], scores: pd.DataFrame = dev) -> list[Row]:
        return _compare(scores, [(subject, name) for name in names], width)

    pooled, learned = [*against(rivals), *against(ablations)], []
    compared: list[str] = next((row["tasks"] for row in pooled if row["against"] == CONTROL), [])
    above = runs[runs["method"] == CONTROL].groupby(["task", "seed"])["above_constant"].mean()
    tasks = [task for task in compared if above[task].mean() > 0]
    if 0 < len(tasks) < len(compared):
        learned = [*against([CONTROL], dev.loc[tasks]), *against(rivals[1:], dev.loc[tasks])]
    gaps = _compare(gap, gap_pairs, 2 * width)
    return {
        "subject": subject,
        "methods": [*_method_rows(runs, means, methods, CONTROL, subject)],
        "ablations": [*_method_rows(runs, means, with_subject, SUBJECT, subject)],
        "pooled": pooled,
        "learned": learned,
        "gaps": [_explain_gap(row, means) for row in gaps],
        "notes": tuple(_find_notes(runs, protocol)),
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
            "is_sized": record.is_sized,
            "size": record.share_left if record.is_sized else record.removed,
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


def _compare(
    scores: pd.DataFrame, pairs: Iterable[tuple[str, str]], width: float, counted: str = PAIRS
) -> list[Row]:
    """Compare methods with references as one family; those without a common seed are left out.

    `scores` has a column for each method. No difference is larger than `width`.
    """
    differences = {
        (method, reference): (scores[method] - scores[reference]).dropna()
        for method, reference in pairs
        if {method, reference} <= {*scores}
    }
    family = {pair: each for pair, each in differences.items() if len(each)}
    comparisons = compare({str(n): each.tolist() for n, each in enumerate(family.values())})
    rows = []
    for ((method, reference), each), comparison in zip(
        family.items(), comparisons.values(), strict=True
    ):
        found = _clip(comparison.paired.differences, -width, width)
        clipped = replace(comparison, paired=replace(comparison.paired, differences=found))
        rows.append({
            "method": method,
            "against": reference,
            "tasks": [*each.index.unique("task")],
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
            "verdict": verdict(clipped, counted=counted),
        })  # fmt: skip
    return rows


def _method_rows(
    runs: pd.DataFrame, means: pd.DataFrame, methods: Sequence[str], reference: str, subject: str
) -> Iterable[Row]:
    for task, of_task in runs.groupby("task"):
        present = [name for name in methods if name in set(of_task["method"])]
        rows = _compare(
            means.loc[[task], "dev"].unstack("method"),
            [(name, reference) for name in present if name != reference],
            100 - of_task["low"].iloc[0],
            "seeds",
        )
        comparisons = {row["method"]: row for row in rows}
        seeds = set(of_task.loc[of_task["method"].isin(present), "seed"])
        of_subject = of_task[of_task["method"] == subject]
        for name in present:
            own, of_seeds = of_task[of_task["method"] == name], means.loc[task, name]
            scores = summarise(of_seeds["dev"].tolist(), of_task["metric"].iloc[0])
            collapse = tuple(_find_collapse(own))
            missing = f"not compared: no run of {reference} with the same seed"
            comparison = comparisons.get(
                name,
                {"significant": False, "verdict": None if name == reference else missing},
            )
            yield {
                **comparison,
                "task": task,
                "method": name,
                "seeds": scores.n,
                **_columns("P", summary(of_seeds["removed"].tolist())),
                **_columns("dev", scores),
                "dev interval low": scores.low,
                "dev interval high": scores.high,
                **_columns("train", summary(of_seeds["train"].tolist())),
                **_columns("gap", summary(of_seeds["gap"].tolist())),
                "reference": None if name == reference else reference,
                "collapse": collapse,  # how many runs score like a constant answer
                "flags": (*collapse, *_find_flags(own, of_subject, seeds)),
                "draws": int(own["seed"].value_counts().max()),
                "heads": fmean(of_seeds["total"]),
                "own seconds": fmean(of_seeds["own_seconds"]),
                **{title: fmean(of_seeds[column]) for title, column in COSTS.items()},
            }


def _explain_gap(row: Row, means: pd.DataFrame) -> Row:
    """Add the scores that a difference of gaps, train minus dev, consists of."""
    pairs = means[["gap", "train", "dev"]].unstack("method")
    both = [(name, each) for name in ("gap", "train", "dev") for each in (row["method"], CONTROL)]
    found = pairs[both].dropna().mean()
    words = row["verdict"].replace("ahead by", "larger by", 1)
    return {
        **row,
        "gap": found["gap", row["method"]],
        f"gap of {CONTROL}": found["gap", CONTROL],
        "train difference": found["train", row["method"]] - found["train", CONTROL],
        "dev difference": found["dev", row["method"]] - found["dev", CONTROL],
        "verdict": words.replace("behind by", "smaller by", 1),
    }


def _task_rows(runs: Iterable[RunRecord]) -> list[Row]:
    columns = ("task", "metric", "classes", "train rows", "dev rows")
    grouped = group(
        runs, lambda run: (run.task, run.measure, run.labels, run.train_rows, run.dev_rows)
    )
    rows = []
    for facts, of_task in sorted(grouped.items()):
        shares = [100 * run.majority for run in of_task if run.majority is not None]
        low, high = (min(shares), max(shares)) if shares else (None, None)
        ends = {"dev majority class low": low, "dev majority class high": high}
        rows.append({**dict(zip(columns, facts, strict=True)), **ends})
    return rows


# --- caveats: constant answers, missing runs, unequal conditions ---


def _find_collapse(runs: pd.DataFrame) -> Iterable[str]:
    """Yield how many runs of a method score like a constant answer."""
    one_class, equal = runs["one_class"], runs["equals_majority"]
    if one_class.any():
        yield f"one class predicted in {one_class.sum()} of {count(len(runs), 'run')}"
    if (equal & ~one_class).any():
        number = (equal & ~one_class).sum()
        yield f"equals the majority class in {number} of {count(len(runs), 'run')}"


def _find_flags(runs: pd.DataFrame, subject: pd.DataFrame, seeds: set[int]) -> Iterable[str]:
    """Yield poor scores, missing runs, and differences from the subject's runs."""
    method = runs["method"].iloc[0]
    shares = runs.loc[runs["metric"] == "accuracy", "majority"].dropna()
    if len(shares) and runs.groupby("seed")["above_constant"].mean().mean() < 0:
        yield f"below the majority class ({100 * shares.mean():.2f})"
    missing = sorted(seeds - set(runs["seed"]))
    if missing:
        yield f"no run of seed {', '.join(map(str, missing))}"
    draws = runs["seed"].value_counts()
    if draws.nunique() > 1:
        yield f"{draws.min()} to {draws.max()} draws a seed"
    pairs = runs.merge(subject.drop_duplicates("seed"), on="seed", suffixes=("", "_subject"))
    name = subject["method"].iloc[0] if len(subject) else SUBJECT
    if method in MATCHED and ((pairs["size"] - pairs["size_subject"]).abs() > _SAME_SIZE).any():
        yield f"{'size' if subject['is_sized'].any() else 'P'} is not {name}'s"
    tuned = pairs["tuned_layers"] != pairs["tuned_layers_subject"]
    if method in (*MATCHED, CONTROL) and tuned.any():
        yield f"tuned after other layers than {name}"


def _find_notes(runs: pd.DataFrame, protocol: str) -> Iterable[str]:
    """Yield what holds for several rows: shared dev sets and unequal conditions."""
    sets = runs.groupby("task")[["seed", "data"]].nunique().query("seed > 1")["data"]
    shared, own_rows = sets.index[sets == 1], sets.index[sets > 1]
    if len(shared):
        yield (
            f"The seeds of {', '.join(shared)} share one dev set: an interval is about other "
            "seeds, not about other rows."
        )
    if len(own_rows):
        names = " If they are several data sets, give each a --name." if OWN in own_rows else ""
        yield f"The rows of {', '.join(own_rows)} differ from seed to seed.{names}"
    if protocol in OTHER_START and runs["method"].isin(CONTROLS).any():
        yield OTHER_START[protocol]
    for task, of_task in runs.groupby("task"):
        searches = ~of_task["method"].isin(CONTROLS if protocol in OTHER_START else ())
        starts = of_task[searches].groupby("seed")["start"].nunique()
        if (starts > 1).any():
            yield (
                f"Warning: the methods of {task}, seed "
                f"{', '.join(map(str, starts.index[starts > 1]))}, did not start from the same "
                "fine-tuned weights."
            )
        for method, own in of_task.groupby("method"):
            draws = own["seed"].value_counts().max()
            if draws > 1:
                yield f"{task}, {method}: the score of a seed is the mean of up to {draws} draws."
            yield from _differing_settings(
                f"the runs of {task}, {method}", own, lambda key: key not in _FREE_SETTINGS
            )
        yield from _differing_settings(
            f"the methods of {task}",
            of_task.drop_duplicates("method"),
            lambda key: key.startswith(_SHARED_SETTINGS) and key != "first.when",
        )


def _differing_settings(
    which: str, runs: pd.DataFrame, counts: Callable[[str], bool]
) -> Iterable[str]:
    defaults = Config().flat()  # a setting newer than a run had its default there
    keys = {key for config in runs["config"] for key in config if counts(key)}
    differing = [
        key
        for key in sorted(keys)
        if len({repr(config.get(key, defaults.get(key))) for config in runs["config"]}) > 1
    ]
    if differing:
        yield f"Warning: {which} differ in {', '.join(differing)}."
