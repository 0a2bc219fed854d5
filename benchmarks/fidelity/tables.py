"""Results of the fidelity benchmark as tables and a figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import pandas

from auber.export.speed import Speed, Times
from benchmarks.fidelity.record import Entry

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNTS, SIZES, FORMS = (1000, 5000, 20000), (0.5, 0.25), ("float32", "int8")


class Goal(NamedTuple):
    """What a model of half the multiply-adds should reach in float32."""

    measure: str
    least: float


# The measures that a page shows, by kind of model; the first is that of the figure.
MEASURES = {
    "reranker": ("rank correlation within queries", "same first place", "NDCG@10"),
    "encoder": ("rank correlation of near pairs", "cosine"),
    "tagger": ("same tag", "same tag where either is not o"),
}
GOALS = {
    "reranker": (Goal(MEASURES["reranker"][0], 0.9), Goal(MEASURES["reranker"][1], 0.85)),
    "encoder": (Goal(MEASURES["encoder"][0], 0.95),),
    "tagger": (),
}
GOAL_SIZE = 0.5


class Group(NamedTuple):
    """The entries of one model."""

    model: str
    kind: str
    entries: tuple[Entry, ...]

    def find(self, keep: float, texts: int, form: str, measure: str) -> float | None:
        """Return the mean over the runs that measured this; None without one."""
        found = [
            each.forms[form][measure]
            for each in self.entries
            if (each.keep, each.texts) == (keep, texts) and form in each.forms
        ]
        return fmean(found) if found else None


def group_entries(entries: Sequence[Entry]) -> list[Group]:
    """Return the entries by kind and model."""
    keys = sorted({(each.kind, each.model) for each in entries}, key=_order)
    return [
        Group(
            model, kind, tuple(each for each in entries if (each.kind, each.model) == (kind, model))
        )
        for kind, model in keys
    ]


def _order(key: tuple[str, str]) -> tuple[int, str]:
    return list(MEASURES).index(key[0]), key[1]


def make_table(group: Group) -> pandas.DataFrame:
    """Return the fidelity by size and number of texts: float32 / int8, empty if not measured."""
    rows: list[tuple[float, int]] = [(1, 0), *((keep, count) for keep in SIZES for count in COUNTS)]
    return pandas.DataFrame(
        {
            "multiply-adds kept": f"{100 * keep:.0f} %",
            "texts": f"{count:,}" if count else "",
            **{name: _pair(group, keep, count, name) for name in MEASURES[group.kind]},
        }
        for keep, count in rows
    )


def _pair(group: Group, keep: float, count: int, measure: str) -> str:
    found = [group.find(keep, count, form, measure) for form in FORMS]
    if keep == 1:  # float32 is what it is compared with
        found[0] = 1.0
    cells = ["" if value is None else f"{value:.3f}" for value in found]
    return " / ".join(cells) if any(cells) else ""


def make_goals(groups: Sequence[Group]) -> pandas.DataFrame:
    """Return the goals for half of the multiply-adds, with what was reached; empty if nothing."""
    rows = [
        {
            "model": group.model,
            "goal at 50 % in float32": f"{goal.measure} at least {goal.least:g}",
            **{
                f"{count:,} texts": "" if value is None else f"{value:.3f}"
                for count in COUNTS
                for value in [group.find(GOAL_SIZE, count, "float32", goal.measure)]
            },
        }
        for group in groups
        for goal in GOALS[group.kind]
    ]
    return pandas.DataFrame(rows)


def make_speeds(speeds: Mapping[str, Speed]) -> pandas.DataFrame:
    """Return how many times as fast pruned models are in onnxruntime, by form and batch size."""
    return pandas.DataFrame(_speed_rows(speeds))


def _speed_rows(speeds: Mapping[str, Speed]) -> Iterator[dict[str, str]]:
    for model, speed in speeds.items():
        for run in speed.runs:
            kept = run.multiply_adds.pruned / run.multiply_adds.unpruned
            for timing in run.timings:
                if timing.runtime != "onnxruntime":
                    continue
                times: dict[str, Times] = {each.name: each.times for each in timing.variants}
                whole, pruned, small, both = (
                    each.milliseconds
                    for each in (
                        timing.unpruned,
                        times["pruned"],
                        times["unpruned int8"],
                        times["pruned int8"],
                    )
                )
                yield {
                    "model": model,
                    "multiply-adds kept": f"{100 * kept:.0f} %",
                    "batch": str(timing.batch),
                    "unpruned, ms": f"{whole:.1f}",
                    "pruned, ms": f"{pruned:.1f} ({whole / pruned:.2f} times as fast)",
                    "int8, ms": f"{small:.1f}",
                    "pruned int8, ms": f"{both:.1f} ({small / both:.2f} times int8)",
                }


def draw(groups: Sequence[Group]) -> Figure:
    """Return the first measure of each model against the number of texts."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * max(1, len(groups)), 3.4), layout="constrained")
    panels = figure.subplots(1, len(groups), squeeze=False)[0]
    for panel, group in zip(panels, groups, strict=True):
        measure = MEASURES[group.kind][0]
        for keep, color in zip(SIZES, ("tab:blue", "tab:orange"), strict=True):
            for form, style in zip(FORMS, ("-", ":"), strict=True):
                values = [group.find(keep, count, form, measure) for count in COUNTS]
                points = [
                    (count, value) for count, value in zip(COUNTS, values, strict=True) if value
                ]
                if points:
                    label = f"{100 * keep:.0f} %, {form}"
                    counts, found = zip(*points, strict=True)
                    panel.plot(counts, found, style, marker="o", color=color, label=label)
        alone = group.find(1, 0, "int8", measure)
        if alone is not None:
            panel.axhline(alone, color="gray", linestyle=":", label="int8 alone")
        for goal in GOALS[group.kind][:1]:
            panel.axhline(goal.least, color="gray", linewidth=0.7, label="goal at 50 %")
        panel.set(xscale="log", xticks=COUNTS, xticklabels=[f"{count:,}" for count in COUNTS])
        panel.set(title=group.model, xlabel="texts", ylabel=measure)
        panel.minorticks_off()
        panel.legend(fontsize="xx-small")
    return figure
