"""The figures of reports, drawn with matplotlib.

One figure gives SVG, PDF and PNG, the same bytes each time: the hash salt of SVG is fixed and no
date is written. All text is taken literally, without TeX. Draw inside the context `style()`.
"""

from __future__ import annotations

import io
import itertools
import math
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from auber.report.analysis import Section, summarise
from auber.report.head_maps import SHADES, HeadMap
from auber.report.layers import Layer, Run
from auber.report.records import RunRecord, group

COLOURS = (
    "#0b5fa5", "#b5482a", "#3a7d34", "#7a4fa3", "#8a6d00", "#4aa3df", "#d1638f", "#2f8f8f",
    "#9ac04a", "#e0a030", "#222222", "#777777",
)  # fmt: skip
GAIN, LOSS, GREY, FAINT, INK = COLOURS[0], COLOURS[1], "#777777", "#e4e4e4", "#222222"

_STYLE: Any = {
    "svg.hashsalt": "auber",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "text.parse_math": False,
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "text.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "savefig.transparent": True,
}
RunsByTask = Mapping[str, Mapping[str, Sequence[Run]]]  # runs by task, then by method or label
Interval = tuple[float | None, float | None]
UNPRUNED = "unpruned"
_LETTER = 0.062  # inches, its mean width in this size
_WIDEST_INTERVAL = 15.0  # points; a wider one does not set the axis


@contextmanager
def style() -> Iterator[None]:
    """Draw in the style of the reports inside the context."""
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        # Names may have letters that the font lacks, or be longer than the figure.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="constrained_layout not applied")
        yield


def make_figure(
    number: int,
    width: float,
    height: float,
    *,
    most: int = 4,
    room: tuple[float, float] = (0.6, 0.7),
    share: bool | str = False,
) -> tuple[Figure, list[Axes]]:
    """Return a figure and its axes: `number` panels row by row, at most `most` side by side.

    The size of a panel, and the room around all of them, are in inches.
    """
    columns = min(number, most)
    rows = math.ceil(number / columns)
    size = (columns * width + room[0], rows * height + room[1])
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, sharex=share is True, sharey=bool(share), squeeze=False)
    for unused in axes.flat[number:]:
        unused.set_visible(False)
    return figure, list(axes.flat[:number])


def to_svg(figure: Figure) -> str:
    """Return a figure as SVG."""
    sink = io.BytesIO()
    _save(figure, sink, "svg")
    return sink.getvalue().decode()


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure as SVG, PDF or PNG, by the ending of the path."""
    _save(figure, path, path.suffix[1:])


def _save(figure: Figure, place: Any, kind: str) -> None:
    undated = {"svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}
    with style():
        figure.savefig(place, format=kind, metadata=undated.get(kind), dpi=200)


def add_legend(figure: Figure, *every: Axes) -> None:
    """Put a legend of the labelled marks below a figure, in as many columns as fit its width.

    A figure that is narrower than the longest label becomes wider.
    """
    handles: dict[str, Any] = {}
    for axes in every:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if not handles:
        return
    widest = _LETTER * (max(map(len, handles)) + 9)  # with its mark and the space between columns
    figure.set_figwidth(max(figure.get_figwidth(), widest))
    columns = int(figure.get_figwidth() / widest)
    figure.set_figheight(figure.get_figheight() + 0.17 * math.ceil(len(handles) / columns))
    figure.legend(handles.values(), list(handles), loc="outside lower center", ncols=columns)


def draw_scores(section: Section, cells: RunsByTask) -> Figure:
    """Draw single scores as circles, means as dots, and intervals, with a panel for each task."""
    panels = {}
    for task, rows in group(section.rows, lambda row: row["task"]).items():
        measure = next(iter(cells[task].values()))[0].record.measure
        panels[f"{task}, {measure}"] = {row["method"]: row for row in rows}
    with style():
        figure, drawn = _make_panels(panels, "points")
        for (axes, places), by_method in zip(drawn, panels.values(), strict=True):
            scores, intervals = [], []
            for y, row in zip(places, by_method.values(), strict=True):
                runs = cells[row["task"]][row["method"]]
                singles = [100 * run.record.dev for run in runs]
                scores += [*singles, row["dev"]]
                intervals.append((row["dev interval low"], row["dev interval high"]))
                if row["dev interval low"] is not None:
                    axes.plot(intervals[-1], (y, y), color=GREY, linewidth=2, label="95 % interval")
                name = "mean" if len(singles) > 1 else "score"
                is_subject = row["method"] == section.subject
                colour, label = (LOSS, None) if is_subject else (GAIN, name)
                axes.plot(row["dev"], y, "o", color=colour, markersize=5, label=label, zorder=3)
                if len(singles) > 1:
                    ys = [y] * len(singles)
                    axes.plot(singles, ys, "o", color=GAIN, mfc="none", ms=4, label="one run")
            records = [run.record for of in cells[row["task"]].values() for run in of]
            shares = {record.majority for record in records if record.metric == "accuracy"}
            if len(shares) == 1 and (share := shares.pop()) is not None:
                scores.append(100 * share)
                axes.axvline(scores[-1], color=GREY, ls="--", lw=1, label="majority class")
            axes.set_xlim(*_limits(scores, intervals))
        add_legend(figure, *(axes for axes, _ in drawn))
    return figure


def _limits(scores: Sequence[float], intervals: Iterable[Interval]) -> tuple[float, float]:
    """Return the ends of an axis with all scores and all intervals that are not too wide."""
    every = [*scores]
    for low, high in intervals:
        if low is not None and high is not None and high - low <= _WIDEST_INTERVAL:
            every += [low, high]
    room = max(0.08 * (max(every) - min(every)), 0.5)
    return min(every) - room, max(every) + room


class Point(NamedTuple):
    """A score in points at a size in %, with its interval over several runs."""

    size: float
    score: float
    low: float | None = None
    high: float | None = None


def find_sizes(cells: RunsByTask, *, pooled: bool) -> tuple[dict[str, dict[str, list[Point]]], str]:
    """Return scores by size in % of the unpruned model, and what the size is of.

    If `pooled`, the runs of a name are one point, their mean. A run may have made several sizes.
    """
    records = [run.record for of in cells.values() for runs in of.values() for run in runs]
    has_adds = any(record.remaining for record in records)
    has_adds &= all(record.remaining or not record.removed for record in records)

    def points(record: RunRecord) -> list[Point]:
        if not has_adds:
            left = 1 - record.removed / (record.layers * record.heads)
            return [Point(100 * left, 100 * record.dev)]
        found = {each.remaining.multiply_adds: each.dev.score for each in record.sizes}
        found[record.share_left] = record.dev
        if record.before is not None and not pooled:
            found.setdefault(record.before.multiply_adds, record.before.score)
        return [Point(100 * size, 100 * found[size]) for size in sorted(found)]

    def line(runs: Sequence[Run]) -> list[Point]:
        every = [points(run.record) for run in runs]
        if not pooled or len({len(of) for of in every}) > 1:
            return sorted({point for of in every for point in of})
        if len(every) == 1:
            return every[0]
        found = []
        for of in zip(*every, strict=True):
            mean = summarise([point.score for point in of], runs[0].record.metric)
            size = fmean(point.size for point in of)
            found.append(Point(size, mean.mean, mean.low, mean.high))
        return found

    panels = {}
    for task, of_task in cells.items():
        every = [run.record for runs in of_task.values() for run in runs]
        if not pooled and len({(record.data, record.metric) for record in every}) > 1:
            continue  # their scores are not comparable
        panels[task] = {name: line(runs) for name, runs in of_task.items()}
        before = [record.before for record in every]
        scores = {each.score for each in before if each and each.multiply_adds == 1}
        if len(scores) == 1 and None not in before and not pooled:
            panels[task][UNPRUNED] = [Point(100, 100 * scores.pop())]
    return panels, "multiply-adds left, %" if has_adds else "heads left, %"


def draw_sizes(panels: Mapping[str, Mapping[str, Sequence[Point]]], axis: str) -> Figure:
    """Draw scores against sizes: a line with its band for each name, or a dot if it has one size.

    The score of the unpruned model is a dashed line across.
    """
    names = dict.fromkeys(name for of in panels.values() for name in of if name != UNPRUNED)
    colours = dict(zip(names, itertools.cycle(COLOURS), strict=False))
    with style():
        alone = len(panels) == 1
        width, height = (2.9, 2.2) if alone else (2.1, 1.9)
        figure, every = make_figure(len(panels), width, height, most=2, room=(0.3, 0.3))
        for axes, (title, of) in zip(every, panels.items(), strict=True):
            axes.set_title(title, loc="left")
            axes.set(xlabel=axis, ylabel="dev score, points")
            lines = {name: points for name, points in of.items() if name != UNPRUNED}
            if UNPRUNED in of:
                axes.axhline(of[UNPRUNED][0].score, color=GREY, ls="--", lw=1, label=UNPRUNED)
            dots = {name: points[0].size for name, points in lines.items() if len(points) == 1}
            for name, points in lines.items():
                # Dots of nearly the same size would hide each other.
                near = [other for other in dots if abs(dots[other] - points[0].size) < 1]
                shift = near.index(name) - (len(near) - 1) / 2 if name in dots else 0.0
                colour, sizes = colours[name], [point.size + shift for point in points]
                scores = [point.score for point in points]
                axes.plot(sizes, scores, "o-", markersize=4, color=colour, label=name)
                known = [
                    (x, point.low, point.high)
                    for x, point in zip(sizes, points, strict=True)
                    if point.low is not None and point.high is not None
                ]
                if len(known) > 1:
                    places, lows, highs = zip(*known, strict=True)
                    axes.fill_between(places, lows, highs, color=colour, alpha=0.15, lw=0)
                for x, *interval in known if len(known) == 1 else ():
                    axes.plot((x, x), interval, color=colour, linewidth=1, alpha=0.6)
            points = [point for line in of.values() for point in line]
            intervals = [(point.low, point.high) for point in points]
            if points:
                axes.set_ylim(*_limits([point.score for point in points], intervals))
            else:
                axes.set_yticks(())
            axes.set_xlim(0, 108)
        add_legend(figure, *every)
    return figure


def draw_searches(panels: Mapping[str, Sequence[Layer]]) -> Figure:
    """Draw the searches of layers by title; several of a panel have a strong mean."""
    with style():
        figure, every = make_figure(len(panels), 1.3, 0.95, most=3, share=True)
        for axes, (title, layers) in zip(every, panels.items(), strict=True):
            axes.set_title(title, loc="left")
            alone = len(layers) == 1
            curves = {index: pd.Series(dict(layer.gains)) for index, layer in enumerate(layers)}
            last = max(layer.masks_scored for layer in layers)
            for layer, curve in zip(layers, curves.values(), strict=True):
                curve.loc[layer.masks_scored] = curve.iloc[-1]
                alpha = 1 if alone else 0.3
                axes.step(curve.index, curve, where="post", color=GAIN, alpha=alpha, linewidth=1.2)
                if alone and layer.gain is not None:
                    axes.plot(layer.masks_scored, layer.gain, "o", color=LOSS, markersize=4)
            if not alone:
                counts = sorted({1, last, *range(10, last, 10)})
                gains = pd.DataFrame(curves)
                gains = gains.reindex(sorted({*gains.index, *counts})).ffill().fillna(0.0)
                axes.plot(counts, gains.mean(axis=1)[counts], color=LOSS, linewidth=2)
            axes.axhline(0, color=GREY, linewidth=0.8)
        figure.supxlabel("different masks scored", fontsize=8)
        figure.supylabel("best gain, points", fontsize=8)
    return figure


def draw_heads(rows: Sequence[Sequence[HeadMap]]) -> Figure:
    """Draw rows of maps: layers downwards, heads to the right, removed ones crossed, and bars."""
    columns = max(map(len, rows))
    every = [each for row in rows for each in (*row, *[None] * (columns - len(row)))]
    layers, heads = np.max([np.shape(each.shades) for row in rows for each in row], axis=0)
    cell = min(0.2, 2.6 / heads)  # inches
    room = 10 if any(each and each.neurons for each in every) else 1  # cells for bars
    width, height = max(cell * (heads + 2 + room), 2.2), cell * layers + 0.7
    colours = LinearSegmentedColormap.from_list("heads", [LOSS, FAINT, GAIN], 2 * SHADES + 1)
    with style():
        figure, all_axes = make_figure(len(every), width, height, most=columns, room=(0.3, 0.3))
        for axes, each in zip(all_axes, every, strict=True):
            if each is None:
                axes.set_visible(False)
                continue
            axes.imshow(each.shades, colours, vmin=-SHADES, vmax=SHADES, interpolation="none")
            for layer, head in sorted(each.removed):
                axes.plot(head, layer, "x", color=INK, markersize=cell * 30, markeredgewidth=0.8)
            bottom, last = len(each.shades) - 1, len(each.shades[0]) - 1
            axes.set_xticks([0, last], ["0", "stop" if each.stop else str(last)])
            axes.set_yticks([0, bottom])
            axes.set_anchor("W")
            for layer, (percent, number, _) in enumerate(each.bars):
                axes.barh(layer, 6 * percent / 100, 0.7, left=last + 1, color=GAIN)
                axes.text(last + 1.3 + 6 * percent / 100, layer, number, va="center", color=GREY)
            axes.set_xlim(-0.5, last + room - 0.5)
            letters = int(width / _LETTER) - 5
            title = textwrap.fill(f"{each.title}. {each.legend}".strip(), letters)
            axes.set_title(title, loc="left")
            axes.grid(visible=False)
            axes.spines[:].set_visible(False)
        figure.supxlabel("head", fontsize=8)
        figure.supylabel("layer", fontsize=8)
    return figure


def _make_panels(
    panels: Mapping[str, Iterable[str]], x_label: str
) -> tuple[Figure, list[tuple[Axes, list[int]]]]:
    """Return a figure with a panel for each title, and the places of the names in each panel.

    A name has the same place in all panels. The end of a long name is shown.
    """
    names = list(dict.fromkeys(name for of_panel in panels.values() for name in of_panel))
    width, height = 2.4 if len(panels) == 1 else 1.5, 0.22 * len(names) + 0.5
    figure, every = make_figure(len(panels), width, height, most=2, room=(1.2, 0.3), share="y")
    short = [name if len(name) <= 20 else f"…{name[-19:]}" for name in names]
    every[0].set(yticks=range(len(names)), yticklabels=short, ylim=(len(names) - 0.5, -0.5))
    for axes, title in zip(every, panels, strict=True):
        axes.set_title(title, loc="left")
        axes.set_xlabel(x_label)
    places = [[names.index(name) for name in of_panel] for of_panel in panels.values()]
    return figure, list(zip(every, places, strict=True))
