"""Figures drawn with matplotlib from plain numbers.

One figure gives SVG, PDF and PNG, the same bytes each time: the hash salt of SVG is fixed and no
date is written. All text is taken literally, without TeX. Draw inside the context `style()`.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auber.errors import RunError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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
SHADES = 10  # of a head map on a page
_WIDEST_INTERVAL = 15.0  # points; wider ones end in an arrow at the edge


@contextmanager
def style() -> Iterator[None]:
    """Draw in the style of the reports inside the context."""
    import matplotlib as mpl

    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        # Names may have letters that the font lacks, or be longer than the figure.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="constrained_layout not applied")
        yield


def make_figure(
    width: float, height: float, *, rows: int = 1, columns: int = 1, share: bool = False
) -> tuple[Figure, list[Axes]]:
    """Return a figure of a size in inches and its axes, row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(
        figure.subplots(rows, columns, sharex=share, sharey=share, squeeze=False).flat
    )


def to_svg(figure: Figure) -> str:
    """Return a figure as SVG."""
    sink = io.BytesIO()
    with style():
        figure.savefig(sink, format="svg", metadata={"Date": None, "Creator": None})
    return sink.getvalue().decode()


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure as SVG, PDF or PNG, by the ending of the path."""
    dates = {".svg": {"Date": None, "Creator": None}, ".pdf": {"CreationDate": None}}
    try:
        with style():
            figure.savefig(path, metadata=dates.get(path.suffix), dpi=200)
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error}); choose another place") from error


def add_legend(figure: Figure, axes: Axes, *, columns: int = 2) -> None:
    """Put a legend of the labelled marks below a figure."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)


@dataclass(frozen=True)
class Bar:
    """A horizontal bar cut into parts."""

    name: str
    parts: Mapping[str, float]
    start: float = 0.0
    note: str = ""  # behind its end


def draw_bars(bars: Sequence[Bar], parts: Mapping[str, str], x_label: str) -> Figure:
    """Draw bars from top to bottom; `parts` gives the colour of each part by its name."""
    used = [part for part in parts if any(bar.parts.get(part, 0.0) > 0 for bar in bars)]
    with style():
        height = 0.2 * len(bars) + 0.17 * math.ceil(len(used) / 2) + 0.7
        figure, (axes,) = make_figure(3.7, height)
        for part in used:
            before = [_sum_before(bar, part, used) for bar in bars]
            widths = [bar.parts.get(part, 0.0) for bar in bars]
            axes.barh(range(len(bars)), widths, 0.7, left=before, color=parts[part], label=part)
        for y, bar in enumerate(bars):
            end = bar.start + sum(bar.parts.values())
            axes.annotate(
                bar.note, (end, y), (3, 0), textcoords="offset points", va="center", color=GREY
            )
        _name_rows(axes, [bar.name for bar in bars])
        axes.set_xlabel(x_label)
        axes.grid(visible=False, axis="y")
        axes.margins(x=0.15)
        axes.set_xlim(left=0)
        add_legend(figure, axes)
    return figure


@dataclass(frozen=True)
class ScoreRow:
    """The scores of one method or run in points."""

    name: str
    singles: tuple[float, ...]
    mean: float
    low: float | None
    high: float | None
    strong: bool = False


def draw_scores(
    rows: Sequence[ScoreRow], x_label: str, majority: float | None, interval: str
) -> Figure:
    """Draw single scores as circles, means as dots, and intervals; `interval` names these."""
    narrow = [
        end
        for row in rows
        if row.low is not None and row.high is not None and row.high - row.low <= _WIDEST_INTERVAL
        for end in (row.low, row.high)
    ]
    every = [*narrow, *(score for row in rows for score in (*row.singles, row.mean))]
    every += [] if majority is None else [majority]
    room = max(0.08 * (max(every) - min(every)), 0.5)
    left, right = min(every) - room, max(every) + room
    with style():
        figure, (axes,) = make_figure(3.7, 0.22 * len(rows) + 1.1)
        for y, row in enumerate(rows):
            if row.low is not None and row.high is not None:
                ends = max(row.low, left), min(row.high, right)
                label = interval if y == 0 else None
                axes.plot(ends, (y, y), color=GREY, linewidth=2, label=label, zorder=1)
                outside = ((row.low < left, left, 4), (row.high > right, right, 5))
                for _, end, caret in (each for each in outside if each[0]):
                    axes.plot(end, y, marker=caret, color=GREY, clip_on=False)
            if len(row.singles) > 1:
                axes.scatter(
                    row.singles, [y] * len(row.singles), 14, "none", edgecolors=GAIN, linewidths=0.8
                )
            axes.scatter(row.mean, y, 22, LOSS if row.strong else GAIN, zorder=3)
        axes.scatter([], [], 22, GAIN, label="mean" if _several(rows) else "score")
        if _several(rows):
            axes.scatter([], [], 14, "none", edgecolors=GAIN, label="one run")
        if majority is not None:
            axes.axvline(
                majority, color=GREY, linestyle="--", linewidth=1,
                label=f"majority class, {majority:.2f}",
            )  # fmt: skip
        axes.set_xlim(left, right)
        _name_rows(axes, [row.name for row in rows])
        axes.set_xlabel(x_label)
        add_legend(figure, axes)
    return figure


@dataclass(frozen=True)
class Curve:
    """The best gain of a search at each improvement, in points."""

    title: str
    points: Sequence[tuple[int, float]]
    scored: int  # different masks in all
    chosen: float | None = None


def draw_searches(panels: Mapping[str, Sequence[Curve]], *, columns: int = 3) -> Figure:
    """Draw a panel of curves for each title; several curves of a panel have a strong mean."""
    columns = min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    with style():
        figure, every = make_figure(
            max(1.3 * columns, 3.5), 0.95 * rows + 0.7, rows=rows, columns=columns,
            share=True,
        )  # fmt: skip
        for axes, (title, curves) in zip(every, panels.items(), strict=False):
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
        for axes in every[len(panels) :]:
            axes.set_visible(False)
        figure.supxlabel("different masks scored", fontsize=8)
        figure.supylabel("best gain, points", fontsize=8)
    return figure


@dataclass(frozen=True)
class HeadMap:
    """A number for each head by layer, None where it is unknown, drawn here and on the page."""

    title: str
    values: Sequence[Sequence[float | None]]
    texts: Sequence[Sequence[str]]  # the description of each head
    legend: str = ""
    removed: frozenset[tuple[int, int]] = frozenset()
    is_gain: bool = True  # the colour; of signed values both are used
    is_signed: bool = False
    from_zero: bool = False  # 0 has no colour, else the lowest value has a faint one
    stop: bool = False  # the last column is the action of stopping
    counts: Sequence[str] = ()  # behind the rows

    @property
    def limits(self) -> tuple[float, float]:
        """The values without and with full colour."""
        found = [value for row in self.values for value in row if value is not None] or [0.0]
        if self.is_signed or self.from_zero:
            return 0.0, max(map(abs, found)) or 1.0
        return min(found), max(found)

    def shade(self, row: int, column: int) -> int:
        """Return the strength of a colour from 1 to `SHADES`, negative for a loss, 0 for none."""
        value, (low, high) = self.values[row][column], self.limits
        if value is None or (self.from_zero and not value):
            return 0
        share = (abs(value) if self.is_signed else value) - low
        strength = 1 + round((SHADES - 1) * (share / (high - low) if high > low else 1.0))
        is_gain = value >= 0 if self.is_signed else self.is_gain
        return strength if is_gain else -strength


def draw_heads(panels: Sequence[HeadMap], *, columns: int = 3) -> Figure:
    """Draw maps of heads: layers downwards, heads to the right, removed ones crossed."""
    from matplotlib.colors import LinearSegmentedColormap

    columns = min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    layers, heads = len(panels[0].values), len(panels[0].values[0])
    cell = min(0.2, 2.6 / max(heads, 1))
    with style():
        figure, every = make_figure(
            columns * (heads * cell + 0.7), rows * (layers * cell + 0.9), rows=rows, columns=columns
        )
        for axes, panel in zip(every, panels, strict=False):
            numbers = [[math.nan if x is None else x for x in row] for row in panel.values]
            low, high = panel.limits
            colours = ["#eef2f6", GAIN if panel.is_gain else LOSS]
            if panel.is_signed:
                low, colours = -high, [LOSS, "#ffffff", GAIN]
            colormap = LinearSegmentedColormap.from_list("heads", colours)
            image = axes.imshow(
                numbers,
                colormap.with_extremes(bad=FAINT),
                vmin=low,
                vmax=high,
                interpolation="none",
            )
            if panel.removed:
                y, x = zip(*sorted(panel.removed), strict=True)
                axes.scatter(x, y, (cell * 30) ** 2, INK, marker="x", linewidths=0.8)
            if low < high and not panel.counts:
                figure.colorbar(image, ax=axes, shrink=0.8)
            axes.set_title(panel.title)
            axes.set(xlabel="head", ylabel="layer")
            axes.grid(visible=False)
            if panel.stop:
                last = len(panel.values[0]) - 1
                axes.set_xticks([*range(0, last - 1, 2), last], [*range(0, last - 1, 2), "stop"])
        for axes in every[len(panels) :]:
            axes.set_visible(False)
    return figure


def _several(rows: Sequence[ScoreRow]) -> bool:
    return any(len(row.singles) > 1 for row in rows)


def _sum_before(bar: Bar, part: str, used: Sequence[str]) -> float:
    return bar.start + sum(bar.parts.get(name, 0.0) for name in used[: used.index(part)])


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Label rows from top to bottom; of a long name the end is kept, which tells it apart."""
    short = [name if len(name) <= 20 else f"…{name[-19:]}" for name in names]
    axes.set_yticks(range(len(names)), short)
    axes.set_ylim(len(names) - 0.5, -0.5)


def _mean_curve(curves: Sequence[Curve]) -> tuple[list[int], list[float]]:
    """Return the mean of the best gains so far."""
    last = max(curve.scored for curve in curves)
    counts = sorted({1, last, *range(10, last, 10)})

    def best(curve: Curve, count: int) -> float:
        return [0.0, *(gain for at, gain in curve.points if at <= count)][-1]

    return counts, [sum(best(curve, at) for curve in curves) / len(curves) for at in counts]
