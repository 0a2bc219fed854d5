"""The figures and head maps of a page, for runs by task and by method or label."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import fmean

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from auber.metrics.statistics import summary
from auber.report.analysis import Section
from auber.report.figures import (
    GAIN,
    TIME_PART_COLOURS,
    Curve,
    HeadMap,
    ScoreRow,
    draw_bars,
    draw_heads,
    draw_scores,
    draw_searches,
    draw_sizes,
    make_shades,
    style,
    to_svg,
)
from auber.report.layers import Head, Run
from auber.report.records import CONTROLS, RunRecord, count
from auber.run.records import TIME_PARTS

TIMES = {**{name: part.words for name, part in TIME_PARTS.items()}, "other": "other"}
_TIME_COLOURS = dict(zip(TIMES.values(), TIME_PART_COLOURS, strict=True))
_RANKINGS = {
    "state": "State before any removal",
    "importance": "Importance (how much the loss depends on the head)",
    "confidence": "Confidence (mean largest attention weight)",
    "gates": "Gates (higher means more open)",
}
_STATE = (
    "State: the norms of a layer's heads, standardised and through a softmax, as the agent sees "
    "them first."
)
_VALUES = (
    "Values: the points of reward that the trained agent expects of {} a head first, or of "
    "stopping. It judges again after each action, so a head of low value may go later."
)

Cells = dict[str, dict[str, list[Run]]]  # runs by task, then by method or label


@dataclass(frozen=True)
class Drawing:
    """One figure; `name` is that of its files."""

    name: str
    title: str
    draw: Callable[[], Figure]

    @cached_property
    def figure(self) -> Figure:
        """The drawn figure, its layout computed once for all files."""
        figure = self.draw()
        with style():
            figure.draw_without_rendering()
        figure.set_layout_engine("none")
        return figure

    @cached_property
    def svg(self) -> str:
        """The figure as SVG."""
        return to_svg(self.figure)


def draw_part(cells: Cells, section: Section | None = None, end: str = "") -> dict[str, Drawing]:
    """Return the figures of some runs by name; a study has a section of comparisons."""
    rows = {f"{task}, {name}": runs for task, of in cells.items() for name, runs in of.items()}
    if len(cells) == 1:
        rows = {name: runs for of in cells.values() for name, runs in of.items()}
    drawn: dict[str, tuple[str, Callable[[], Figure]]] = {}
    sizes, axis = find_sizes(cells)
    if any(sum(map(len, lines.values())) > 1 for lines in sizes.values()):
        metrics = [next(iter(of.values()))[0].record.metric for of in cells.values()]
        labels = [f"dev {metric}, points" for metric in metrics]
        drawn["sizes"] = "Score against size", partial(draw_sizes, sizes, axis, labels)
    if section is not None and section.rows:
        drawn["scores"] = "Dev scores", partial(draw_scores, *_find_scores(section, cells))
    maps = [
        [
            replace(each, title=f"{task}: {each.title}" if len(cells) > 1 else each.title)
            for each in of
        ]
        for task, of in map_heads(cells).items()
    ]
    if maps:
        drawn["heads"] = f"Heads removed in {', '.join(cells)}", partial(draw_heads, maps)
    widths = {title: found for title, runs in rows.items() if (found := find_widths(runs))}
    if widths:
        draw = partial(draw_bars, widths, {"left": GAIN}, "neurons")
        drawn["widths"] = "Feed-forward neurons left", draw
    if section is None:
        for number, run in enumerate((run for runs in rows.values() for run in runs), 1):
            if curves := {title: [curve] for title, curve in find_curves(run).items()}:
                asked, computed = run.record.rewards_asked, run.record.rewards_computed
                title = f"{run.label}: {asked} rewards requested, {computed} computed"
                name = "search" if len(rows) == 1 else f"search-{number}"
                drawn[name] = title, partial(draw_searches, curves)
    else:
        every = {
            title: [curve for run in runs for curve in find_curves(run).values()]
            for title, runs in rows.items()
        }
        if every := {title: curves for title, curves in every.items() if curves}:
            drawn["search"] = "Searches", partial(draw_searches, every)
    times = {
        task: {
            name: pd.DataFrame([time_parts(run.record) for run in runs]).mean().to_dict()
            for name, runs in of_task.items()
        }
        for task, of_task in cells.items()
    }
    if times:
        draw = partial(draw_bars, times, _TIME_COLOURS, "seconds")
        drawn["time"] = "Where the time of a run went", draw
    return {name: Drawing(f"{name}{end}", *found) for name, found in drawn.items()}


def find_sizes(cells: Cells) -> tuple[dict[str, dict[str, dict[float, ScoreRow]]], str]:
    """Return scores by size in % of the unpruned model, and what the size is of.

    A run may have tried several sizes. Several runs of a name have their mean, with its interval.
    """
    records = [run.record for of in cells.values() for runs in of.values() for run in runs]
    has_adds = all(record.remaining or not record.removed for record in records)
    has_adds &= any(record.remaining for record in records)

    def size(record: RunRecord) -> float:
        if has_adds:
            return 100 * record.remaining.multiply_adds if record.remaining else 100.0
        return 100 * (1 - record.removed / (record.layers * record.heads))

    def line(runs: Sequence[Run]) -> dict[float, ScoreRow]:
        scores = [100 * run.record.dev for run in runs]
        found = summary(scores)
        points = {}
        if has_adds and len(runs) == 1:
            record = runs[0].record
            if record.before is not None:
                points[100.0] = ScoreRow((), 100 * record.before.score)
            for each in record.sizes:
                points[100 * each.remaining.multiply_adds] = ScoreRow((), 100 * each.dev.score)
        own = fmean(size(run.record) for run in runs)
        return {**points, own: ScoreRow(tuple(scores), found.mean, found.low, found.high)}

    panels = {
        task: {name: line(runs) for name, runs in of_task.items()}
        for task, of_task in cells.items()
    }
    return panels, "multiply-adds left, %" if has_adds else "heads left, %"


def _find_scores(
    section: Section, cells: Cells
) -> tuple[dict[str, dict[str, ScoreRow]], dict[str, float]]:
    """Return the scores of each method by task, and the shares of the majority classes."""
    panels: dict[str, dict[str, ScoreRow]] = {}
    majority: dict[str, float] = {}
    for row in section.rows:
        task, method = row["task"], row["method"]
        records = [run.record for of_method in cells[task].values() for run in of_method]
        title = f"{task}, {records[0].metric}"
        scores = tuple(100 * run.record.dev for run in cells[task][method])
        ends = row["dev interval low"], row["dev interval high"]
        is_subject = method == section.subject
        panels.setdefault(title, {})[method] = ScoreRow(scores, row["dev"], *ends, is_subject)
        shares = {record.majority for record in records}
        if records[0].metric == "accuracy" and len(shares) == 1 and (share := shares.pop()):
            majority[title] = 100 * share
    return panels, majority


def find_widths(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Return the mean number of neurons left in each layer, empty if no run removed any."""
    counts = [run.record.neurons for run in runs]
    if not any(each and each.removed for each in counts):
        return {}
    return {
        f"layer {layer}": {
            "left": fmean(
                each.per_layer - len(run.plan.neurons.get(layer, ()))
                for run, each in zip(runs, counts, strict=True)
                if each is not None
            )
        }
        for layer in range(runs[0].record.layers)
    }


def find_curves(run: Run) -> dict[str, Curve]:
    """Return the searches of a run as gains in points, by layer."""
    return {
        f"layer {layer.index}": Curve(
            layer.gains,
            search.rewards_computed,
            None if layer.chosen is None else 100 * (layer.chosen - (layer.begun or 0.0)),
        )
        for layer, search in run.searched
        if layer.gains
    }


def time_parts(record: RunRecord) -> dict[str, float]:
    """Return where the seconds of a run went."""
    parts = {words: record.times.get(name, 0.0) for name, words in TIMES.items()}
    return {**parts, "other": max(record.seconds - sum(parts.values()), 0.0)}


# --- maps of heads ---


def map_heads(cells: Cells) -> dict[str, list[HeadMap]]:
    """Return maps of the heads by task: of several runs of a name how often each was removed."""
    found: dict[str, list[HeadMap]] = {}
    for task, of_task in cells.items():
        for name, runs in of_task.items():
            record = runs[0].record
            if record.is_start or (name in CONTROLS and not record.removed):
                continue
            if len(runs) == 1:
                prefix = f"{name}: " if len(of_task) > 1 else ""
                maps = [replace(each, title=prefix + each.title) for each in _map_run(runs[0])]
                found.setdefault(task, []).extend(maps)
            # Heads of models of different sizes are different heads.
            elif len({(run.record.layers, run.record.heads) for run in runs}) == 1:
                found.setdefault(task, []).append(_map_runs(name, runs))
    return found


def _map_runs(name: str, runs: Sequence[Run]) -> HeadMap:
    numbers = np.zeros((runs[0].record.layers, runs[0].record.heads), dtype=int)
    for run in runs:
        for layer, heads in run.plan.heads.items():
            numbers[layer, list(heads)] += 1
    texts = [
        [f"layer {i}, head {j}: removed in {n} of {len(runs)}" for j, n in enumerate(row)]
        for i, row in enumerate(numbers)
    ]
    shades = make_shades(numbers.tolist(), "counts")
    return HeadMap(f"{name}, {count(len(runs), 'run')}", shades, texts, "Stronger: in more runs.")


def _map_run(run: Run) -> Iterator[HeadMap]:
    """Yield what was removed, what the method ranked heads by, and the agent's values."""
    layers, heads = range(run.record.layers), range(run.record.heads)

    def grid(values: Mapping[Head, float], width: int) -> list[list[float | None]]:
        return [[values.get((layer, head)) for head in range(width)] for layer in layers]

    texts = [["; ".join(_head_facts(run, layer, head)) for head in heads] for layer in layers]
    removed = frozenset((layer, head) for layer, gone in run.plan.heads.items() for head in gone)
    counts = [f"-{n}" if (n := len(run.plan.heads.get(layer, ()))) else "" for layer in layers]
    yield HeadMap(
        f"{len(removed)} of {len(layers) * len(heads)} heads removed",
        make_shades(grid(dict.fromkeys(removed, 1.0), len(heads)), "counts"),
        texts,
        "Red: removed. Right: number of removed heads.",
        removed=removed,
        counts=counts,
    )
    scores = run.scores or run.states
    if scores:
        yield HeadMap(
            _RANKINGS[run.ranking or "state"],
            make_shades(grid(scores, len(heads)), "range"),
            texts,
            f"Stronger means higher: {min(scores.values()):.3g} to {max(scores.values()):.3g}.",
            "" if run.scores else _STATE,
            removed,
        )
    if run.values:
        stops = {
            each.index: search.q_values[-1] for each, search in run.searched if search.q_values
        }
        values = run.values | {(layer, len(heads)): number for layer, number in stops.items()}
        words = [f"value {stops[i]:+.3f} points" if i in stops else "not recorded" for i in layers]
        yield HeadMap(
            "The agent's values, points of reward",
            make_shades(grid(values, len(heads) + 1), "signed"),
            [[*texts[i], f"layer {i}, stopping at once: {words[i]}"] for i in layers],
            f"Blue: gain, red: loss, full colour at {max(map(abs, values.values())):.2f} points.",
            _VALUES.format("changing" if run.has_prior else "removing"),
            removed,
            stop=True,
        )


def _head_facts(run: Run, index: int, head: int) -> Iterator[str]:
    """Yield everything known about a head."""
    yield f"layer {index}, head {head}: " + (
        "removed" if head in run.plan.heads.get(index, ()) else "kept"
    )
    search = next((search for layer, search in run.searched if layer.index == index), None)
    if (index, head) in run.states:
        yield f"state {run.states[index, head]:.4f}"
    if search is not None and (index, head) in run.values:
        action = "putting it back" if head in search.given else "removing it"
        yield f"value of {action} first {run.values[index, head]:+.3f} points"
    if search is not None and search.best:
        yield f"{'in' if head in search.best else 'not in'} the best mask scored"
    if (index, head) in run.scores:
        yield f"{run.ranking} {run.scores[index, head]:.4g}"
