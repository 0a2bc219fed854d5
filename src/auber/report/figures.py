"""Figures drawn with matplotlib from plain numbers.

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

COLOURS = (
    "#0b5fa5", "#b5482a", "#3a7d34", "#7a4fa3", "#8a6d00", "#4aa3df", "#d1638f", "#2f8f8f",
    "#9ac04a", "#222222", "#777777",
)  # fmt: skip
TIME_PART_COLOURS = tuple(COLOURS[place] for place in (4, 5, 6, 7, 0, 1, 8, 2, 3, 9, 10))
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
_LETTER = 0.062  # inches, its mean width in this size
SHADES = 10  # of a head map on a page
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
    with style():
        figure.savefig(sink, format="svg", metadata={"Date": None, "Creator": None})
    return sink.getvalue().decode()


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure as SVG, PDF or PNG, by the ending of the path."""
    dates = {".svg": {"Date": None, "Creator": None}, ".pdf": {"CreationDate": None}}
    with style():
        figure.savefig(path, metadata=dates.get(path.suffix), dpi=200)


def add_legend(figure: Figure, *every: Axes) -> None:
    """Put a legend of the labelled marks below a figure, in as many columns as fit its width."""
    handles: dict[str, Any] = {}
    for axes in every:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if not handles:
        return
    widest = max(map(len, handles)) + 9  # the mark and the space between columns
    columns = max(1, int(figure.get_figwidth() / _LETTER / widest))
    figure.set_figheight(figure.get_figheight() + 0.17 * math.ceil(len(handles) / columns))
    figure.legend(handles.values(), list(handles), loc="outside lower center", ncols=columns)


def draw_bars(
    panels: Mapping[str, Mapping[str, Mapping[str, float]]],
    colours: Mapping[str, str],
    x_label: str,
) -> Figure:
    """Draw a bar for each name in each panel, stacked of the parts that `colours` has in order."""
    every = [parts for of_panel in panels.values() for parts in of_panel.values()]
    used = [part for part in colours if any(parts.get(part, 0.0) > 0 for parts in every)]
    with style():
        figure, drawn = _make_panels(panels, x_label)
        for axes, places in drawn:
            ends = np.zeros(len(places))
            for part in used:
                widths = np.array([parts.get(part, 0.0) for parts in places.values()])
                bars = axes.barh(
                    list(places), widths, 0.7, left=ends, color=colours[part], label=part
                )
                ends += widths
                if part == used[-1]:
                    axes.bar_label(bars, [f"{end:.0f}" for end in ends], padding=3, color=GREY)
            axes.grid(visible=False, axis="y")
            axes.margins(x=0.15 if len(panels) == 1 else 0.25)  # room for the totals
            axes.set_xlim(left=0)
        add_legend(figure, drawn[0][0])
    return figure


class ScoreRow(NamedTuple):
    """The scores of one method in points."""

    singles: tuple[float, ...]
    mean: float
    low: float | None = None
    high: float | None = None
    strong: bool = False


def draw_scores(
    panels: Mapping[str, Mapping[str, ScoreRow]], majority: Mapping[str, float]
) -> Figure:
    """Draw single scores as circles, means as dots, and intervals.

    `majority` has the score of the most frequent class by the title of a panel.
    """
    with style():
        figure, drawn = _make_panels(panels, "points")
        for (axes, places), title in zip(drawn, panels, strict=True):
            for y, row in places.items():
                if row.low is not None and row.high is not None:
                    ends = (row.low, row.high)
                    axes.plot(ends, (y, y), color=GREY, linewidth=2, label="95 % interval")
                name = "mean" if len(row.singles) > 1 else "score"
                colour, label = (LOSS, None) if row.strong else (GAIN, name)
                axes.plot(row.mean, y, "o", color=colour, markersize=5, label=label, zorder=3)
                if len(row.singles) > 1:
                    ys = [y] * len(row.singles)
                    axes.plot(row.singles, ys, "o", color=GAIN, mfc="none", ms=4, label="one run")
            share = majority.get(title)
            if share is not None:
                axes.axvline(share, color=GREY, linestyle="--", linewidth=1, label="majority class")
            axes.set_xlim(*_limits(places.values(), share))
        add_legend(figure, *(axes for axes, _ in drawn))
    return figure


def draw_sizes(
    panels: Mapping[str, Mapping[str, Mapping[float, ScoreRow]]],
    x_label: str,
    y_labels: Sequence[str],
) -> Figure:
    """Draw scores against sizes: a line for each name, or a dot if it has one size."""
    names = dict.fromkeys(name for lines in panels.values() for name in lines)
    colours = dict(zip(names, itertools.cycle(COLOURS), strict=False))
    with style():
        figure, every = make_figure(len(panels), 2.5, 2.1, most=3, room=(0.3, 0.3))
        for axes, y_label, (title, lines) in zip(every, y_labels, panels.items(), strict=True):
            axes.set_title(title, loc="left")
            axes.set(xlabel=x_label, ylabel=y_label)
            for name, points in lines.items():
                rows = sorted(points.items())
                means = [row.mean for _, row in rows]
                axes.plot([x for x, _ in rows], means, "o-", ms=4, color=colours[name], label=name)
                for x, row in rows:
                    if row.low is not None and row.high is not None:
                        axes.plot((x, x), (row.low, row.high), color=colours[name], lw=1, alpha=0.6)
            rows_of_all = (row for points in lines.values() for row in points.values())
            axes.set_ylim(*_limits(rows_of_all, None))
            axes.set_xlim(0, 105)
        add_legend(figure, *every)
    return figure


def _limits(rows: Iterable[ScoreRow], majority: float | None) -> tuple[float, float]:
    """Return the ends of an axis with all scores and all intervals that are not too wide."""
    every = [] if majority is None else [majority]
    for row in rows:
        every += [*row.singles, row.mean]
        if row.low is not None and row.high is not None and row.high - row.low <= _WIDEST_INTERVAL:
            every += [row.low, row.high]
    room = max(0.08 * (max(every) - min(every)), 0.5)
    return min(every) - room, max(every) + room


class Curve(NamedTuple):
    """The best gain of a search at each improvement, in points."""

    points: Sequence[tuple[int, float]]
    scored: int  # different masks in all
    chosen: float | None = None


def draw_searches(panels: Mapping[str, Sequence[Curve]]) -> Figure:
    """Draw a panel of curves for each title; several curves of a panel have a strong mean."""
    with style():
        figure, every = make_figure(len(panels), 1.4, 0.95, share=True)
        for axes, (title, curves) in zip(every, panels.items(), strict=True):
            axes.set_title(title, loc="left")
            alone = len(curves) == 1
            for curve in curves:
                x, y = zip(*curve.points, (curve.scored, curve.points[-1][1]), strict=True)
                axes.step(x, y, where="post", color=GAIN, alpha=1 if alone else 0.3, linewidth=1.2)
                if curve.chosen is not None and alone:
                    axes.plot(curve.scored, curve.chosen, "o", color=LOSS, markersize=4)
            if not alone:
                axes.plot(*_mean_curve(curves), color=LOSS, linewidth=2)
            axes.axhline(0, color=GREY, linewidth=0.8)
        figure.supxlabel("different masks scored", fontsize=8)
        figure.supylabel("best gain, points", fontsize=8)
    return figure


def _mean_curve(curves: Sequence[Curve]) -> tuple[list[int], list[float]]:
    """Return the mean of the best gains so far."""
    last = max(curve.scored for curve in curves)
    counts = sorted({1, last, *range(10, last, 10)})

    def best(curve: Curve, count: int) -> float:
        return [0.0, *(gain for at, gain in curve.points if at <= count)][-1]

    return counts, [sum(best(curve, at) for curve in curves) / len(curves) for at in counts]


@dataclass(frozen=True)
class HeadMap:
    """A shade for each head by layer, from -SHADES (loss) to SHADES (gain); 0 has no colour."""

    title: str
    shades: Sequence[Sequence[int]]
    texts: Sequence[Sequence[str]]  # the description of each head
    legend: str = ""
    note: str = ""  # what the numbers are, on the page
    removed: frozenset[tuple[int, int]] = frozenset()
    stop: bool = False  # the last column is the action of stopping
    counts: Sequence[str] = ()  # behind the rows


def make_shades(values: Sequence[Sequence[float | None]], scale: str) -> list[list[int]]:
    """Return the shades of values on a scale.

    On the scale "range" the lowest value is faint and the highest strong, on "counts" 0 has no
    colour and others are losses, and on "signed" the sign chooses the colour. None and values that
    are not finite have no colour.
    """
    numbers = np.array(values, dtype=float)
    is_shaded = np.isfinite(numbers) & ((numbers != 0) | (scale != "counts"))
    sizes = np.abs(numbers) if scale == "signed" else numbers
    high = sizes[is_shaded].max(initial=-math.inf)
    low = sizes[is_shaded].min(initial=high) if scale == "range" else 0.0
    shares = (sizes - low) / (high - low) if high > low else np.ones_like(sizes)
    is_loss = (scale == "counts") | ((scale == "signed") & (numbers < 0))
    shades = (1 + np.round((SHADES - 1) * shares)) * np.where(is_loss, -1, 1)
    found: list[list[int]] = np.where(is_shaded, shades, 0).astype(int).tolist()
    return found


def draw_heads(rows: Sequence[Sequence[HeadMap]]) -> Figure:
    """Draw rows of maps: layers downwards, heads to the right, removed ones crossed."""
    columns = max(map(len, rows))
    every = [each for row in rows for each in (*row, *[None] * (columns - len(row)))]
    layers, heads = np.max([np.shape(each.shades) for row in rows for each in row], axis=0)
    cell = min(0.2, 2.6 / heads)  # inches
    width, height = max(cell * (heads + 3), 2.2), cell * layers + 0.7
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
            for layer, text in enumerate(each.counts):
                axes.text(last + 0.8, layer, text, va="center", color=GREY)
            letters = int(width / _LETTER) - 5
            title = textwrap.fill(f"{each.title}. {each.legend}".strip(), letters)
            axes.set_title(title, loc="left")
            axes.grid(visible=False)
            axes.spines[:].set_visible(False)
        figure.supxlabel("head", fontsize=8)
        figure.supylabel("layer", fontsize=8)
    return figure


Row = TypeVar("Row")


def _make_panels(
    panels: Mapping[str, Mapping[str, Row]], x_label: str
) -> tuple[Figure, list[tuple[Axes, dict[int, Row]]]]:
    """Return a figure with a panel for each title, and the rows of each panel by their place.

    Rows of one name share a line in all panels. Of a long name the end is kept, which tells it
    apart.
    """
    names = list(dict.fromkeys(name for rows in panels.values() for name in rows))
    width, height = 2.4 if len(panels) == 1 else 1.6, 0.22 * len(names) + 0.5
    figure, every = make_figure(len(panels), width, height, room=(1.2, 0.3), share="y")
    short = [name if len(name) <= 20 else f"…{name[-19:]}" for name in names]
    every[0].set(yticks=range(len(names)), yticklabels=short, ylim=(len(names) - 0.5, -0.5))
    for axes, title in zip(every, panels, strict=True):
        axes.set_title(title, loc="left")
        axes.set_xlabel(x_label)
    places = [{names.index(name): row for name, row in rows.items()} for rows in panels.values()]
    return figure, list(zip(every, places, strict=False))
