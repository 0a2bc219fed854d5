"""Figures drawn with matplotlib from plain numbers.

One figure gives SVG, PDF and PNG, the same bytes each time: the hash salt of SVG is fixed and no
date is written. All text is taken literally, without TeX. Draw inside the context `style()`.
"""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

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
_WIDEST_INTERVAL = 15.0  # points; a wider one does not set the axis


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
    width: float, height: float, *, rows: int = 1, columns: int = 1, share: bool | str = False
) -> tuple[Figure, list[Axes]]:
    """Return a figure of a size in inches and its axes, row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=share is True, sharey=bool(share), squeeze=False)
    return figure, list(axes.flat)


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


def add_legend(figure: Figure, *every: Axes, columns: int = 2) -> None:
    """Put a legend of the labelled marks below a figure."""
    handles: dict[str, Any] = {}
    for axes in every:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        figure.legend(handles.values(), list(handles), loc="outside lower center", ncols=columns)


def draw_bars(
    panels: Mapping[str, Mapping[str, Mapping[str, float]]],
    colours: Mapping[str, str],
    x_label: str,
) -> Figure:
    """Draw a bar for each name in each panel, cut into the parts that `colours` has in order.

    A part whose name begins with `_` only moves the others to the right.
    """
    bars = [parts for of_panel in panels.values() for parts in of_panel.values()]
    used = [part for part in colours if any(parts.get(part, 0.0) > 0 for parts in bars)]
    columns = 2 if len(panels) == 1 else 4
    with style():
        figure, drawn = _make_panels(panels, x_label, 0.7 + 0.17 * math.ceil(len(used) / columns))
        for axes, places in drawn:
            ends = [0.0] * len(places)
            for part in used:
                widths = [parts.get(part, 0.0) for parts in places.values()]
                axes.barh(list(places), widths, 0.7, left=ends, color=colours[part], label=part)
                ends = [end + width for end, width in zip(ends, widths, strict=True)]
            for (y, parts), end in zip(places.items(), ends, strict=True):
                total = sum(size for part, size in parts.items() if not part.startswith("_"))
                axes.annotate(
                    f"{total:.0f}", (end, y), (3, 0), textcoords="offset points", va="center",
                    color=GREY,
                )  # fmt: skip
            axes.grid(visible=False, axis="y")
            axes.margins(x=0.15 if len(panels) == 1 else 0.25)  # room for the totals
            axes.set_xlim(left=0)
        add_legend(figure, drawn[0][0], columns=columns)
    return figure


class ScoreRow(NamedTuple):
    """The scores of one method or run in points."""

    singles: tuple[float, ...]
    mean: float
    low: float | None
    high: float | None
    strong: bool = False


def draw_scores(
    panels: Mapping[str, Mapping[str, ScoreRow]],
    x_label: str,
    majority: Mapping[str, float],
    interval: str = "95 % interval",
) -> Figure:
    """Draw single scores as circles, means as dots, and intervals; `interval` names these.

    `majority` has the score of the most frequent class by the title of a panel.
    """
    with style():
        figure, drawn = _make_panels(panels, x_label, 1.1)
        for (axes, places), title in zip(drawn, panels, strict=True):
            left, right = _limits(places.values(), majority.get(title))
            for y, row in places.items():
                if row.low is not None and row.high is not None:
                    ends = (row.low, row.high)
                    axes.plot(ends, (y, y), color=GREY, linewidth=2, label=interval)
                name = "mean" if len(row.singles) > 1 else "score"
                colour, label = (LOSS, None) if row.strong else (GAIN, name)
                axes.plot(row.mean, y, "o", color=colour, markersize=5, label=label, zorder=3)
                if len(row.singles) > 1:
                    ys = [y] * len(row.singles)
                    axes.plot(row.singles, ys, "o", color=GAIN, mfc="none", ms=4, label="one run")
            if title in majority:
                share = majority[title]
                axes.axvline(share, color=GREY, linestyle="--", linewidth=1, label="majority class")
            axes.set_xlim(left, right)
        add_legend(figure, *(axes for axes, _ in drawn), columns=4 if len(panels) > 1 else 2)
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

    title: str
    points: Sequence[tuple[int, float]]
    scored: int  # different masks in all
    chosen: float | None = None


def draw_searches(panels: Mapping[str, Sequence[Curve]]) -> Figure:
    """Draw a panel of curves for each title; several curves of a panel have a strong mean."""
    columns = min(len(panels), 4)
    rows = math.ceil(len(panels) / columns)
    with style():
        figure, every = make_figure(
            max(1.3 * columns, 3.5), 0.95 * rows + 0.7, rows=rows, columns=columns, share=True
        )
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
    removed: frozenset[tuple[int, int]] = frozenset()
    stop: bool = False  # the last column is the action of stopping
    counts: Sequence[str] = ()  # behind the rows


def make_shades(values: Sequence[Sequence[float | None]], scale: str) -> list[list[int]]:
    """Return the shades of values on a scale.

    On the scale "range" the lowest value is faint and the highest strong, on "counts" 0 has no
    colour and others are losses, and on "signed" the sign chooses the colour. None has no colour.
    """
    known = [abs(value) if scale == "signed" else value for row in values for value in row
             if value is not None] or [0.0]  # fmt: skip
    low, high = min(known) if scale == "range" else 0.0, max(known)

    def shade(value: float | None) -> int:
        if value is None or (scale == "counts" and not value):
            return 0
        size = abs(value) if scale == "signed" else value
        strength = 1 + round((SHADES - 1) * ((size - low) / (high - low) if high > low else 1.0))
        return -strength if scale == "counts" or (scale == "signed" and value < 0) else strength

    return [[shade(value) for value in row] for row in values]


def draw_heads(rows: Sequence[Sequence[HeadMap]]) -> Figure:
    """Draw rows of maps: layers downwards, heads to the right, removed ones crossed."""
    import numpy as np
    from matplotlib.colors import to_rgba

    # All maps are one image on one pair of axes: axes of their own would take most of the time.
    layers = max(len(each.shades) for row in rows for each in row)
    heads = max(len(each.shades[0]) for row in rows for each in row)
    cell = min(0.2, 2.6 / heads)  # inches
    width, height = max(heads + 3, math.ceil(1.7 / cell)), layers + math.ceil(0.7 / cell)
    letters = int(width * cell / 0.062)
    image = np.zeros((len(rows) * height, max(map(len, rows)) * width, 4))
    gain, loss, faint = (np.array(to_rgba(colour)) for colour in (GAIN, LOSS, FAINT))
    with style():
        figure, (axes,) = make_figure(image.shape[1] * cell + 0.6, image.shape[0] * cell + 0.5)
        ticks: dict[int, str] = {}
        places = [(i, j, each) for i, row in enumerate(rows) for j, each in enumerate(row)]
        for i, j, each in places:
            top, left = (i + 1) * height - layers, j * width
            for (y, x), shade in np.ndenumerate(each.shades):
                strength = 0.1 + 0.9 * abs(shade) / SHADES if shade else 0.0
                strong = gain if shade > 0 else loss
                image[top + y, left + x] = faint + strength * (strong - faint)
            last = left + len(each.shades[0]) - 1
            ticks |= {left: "0", last: "stop" if each.stop else str(last - left)}
            for y, x in sorted(each.removed):
                axes.plot(left + x, top + y, "x", color=INK, markersize=cell * 30, mew=0.8)
            for y, text in enumerate(each.counts):
                axes.text(last + 0.8, top + y, text, va="center", color=GREY)
            title = textwrap.fill(f"{each.title}. {each.legend}", letters)
            axes.text(left - 0.5, top - 0.8, title, va="bottom")
        axes.imshow(image, interpolation="none", aspect="equal")
        axes.set(xlabel="head", ylabel="layer", xticks=list(ticks), xticklabels=ticks.values())
        tops = range(height - layers, len(image), height)
        ends = [y for top in tops for y in (top, top + layers - 1)]
        axes.set_yticks(ends, ["0", str(layers - 1)] * len(rows))
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
    return figure


Row = TypeVar("Row")


def _make_panels(
    panels: Mapping[str, Mapping[str, Row]], x_label: str, room: float
) -> tuple[Figure, list[tuple[Axes, dict[int, Row]]]]:
    """Return a figure with a panel for each title, and the rows of each panel by their place.

    Rows of one name share a line in all panels. Of a long name the end is kept, which tells it
    apart. `room` is the height that the axis and the legend need.
    """
    names = list(dict.fromkeys(name for rows in panels.values() for name in rows))
    columns = min(len(panels), 4)
    lines = math.ceil(len(panels) / columns)
    width = 3.6 if columns == 1 else 1.2 + 1.6 * columns
    height = lines * (0.22 * len(names) + 0.5) + room - 0.4
    figure, every = make_figure(width, height, rows=lines, columns=columns, share="y")
    short = [name if len(name) <= 20 else f"…{name[-19:]}" for name in names]
    every[0].set(yticks=range(len(names)), yticklabels=short, ylim=(len(names) - 0.5, -0.5))
    for axes, title in zip(every, panels, strict=False):
        axes.set_title(title, loc="left")
        axes.set_xlabel(x_label)
    for axes in every[len(panels) :]:
        axes.set_visible(False)
    places = [{names.index(name): row for name, row in rows.items()} for rows in panels.values()]
    return figure, list(zip(every, places, strict=False))
