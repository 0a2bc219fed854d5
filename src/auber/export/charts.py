"""Charts as SVG written by hand: the same bytes from the same numbers, with no package that draws.

The words here are pixels, colours and text; what is drawn, and in which order, is the caller's. A `Scale` takes values to
pixels, a `Panel` is one pair of axes, and `document` wraps what was drawn. Every string is escaped, every place is given to
a tenth of a pixel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

COLOURS = ("#0b5fa5", "#b5482a", "#3a7d34", "#7a4fa3", "#8a6d00")
GREY, FAINT, INK, GROUND = "#777777", "#e4e4e4", "#222222", "#ffffff"
DASHES, DOTS = "4 4", "1 3"
MOST_HEADS = 10_000  # of a model that is shown; a damaged file must not become a page of gigabytes, or hours of drawing

_LEGEND_SAMPLE, _LEGEND_INDENT = 24, 32


@dataclass(frozen=True)
class Scale:
    """Values from `low` to `high` onto pixels from `start` to `end`, evenly or by their logarithms."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (self.end - self.start) * (value - low) / (high - low)


@dataclass(frozen=True)
class Panel:
    """One pair of axes; `x` runs to the right and `y` upwards, from the panel's lower left corner."""

    x: Scale
    y: Scale

    def axes(
        self,
        *,
        x_title: str,
        x_marks: Iterable[float],
        x_labels: Iterable[tuple[float, str]],
        y_labels: Iterable[tuple[float, str]],
    ) -> Iterator[str]:
        """A faint line across at each label of y, a mark below for each of x, and the two axes."""
        left, right, bottom, top = self.x.start, self.x.end, self.y.start, self.y.end
        for value, label in y_labels:
            yield line(left, self.y(value), right, self.y(value), FAINT, 1)
            yield text(left - 6, self.y(value) + 4, label, GREY, "end")
        for value in x_marks:
            yield line(self.x(value), bottom, self.x(value), bottom + 4, GREY, 1)
        for value, label in x_labels:
            yield text(self.x(value), bottom + 16, label, GREY, "middle")
        yield text((left + right) / 2, bottom + 32, x_title, INK, "middle")
        yield line(left, bottom, right, bottom, GREY, 1)
        yield line(left, top, left, bottom, GREY, 1)

    def line(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        colour: str,
        width: float,
        *,
        dashes: str = "",
    ) -> str:
        """A straight line between two points given by their values."""
        return line(
            self.x(start[0]),
            self.y(start[1]),
            self.x(end[0]),
            self.y(end[1]),
            colour,
            width,
            dashes=dashes,
        )

    def curve(
        self,
        points: Iterable[tuple[float, float]],
        colour: str,
        width: float,
        *,
        dashes: str = "",
        opacity: float = 1.0,
        title: str = "",
    ) -> str:
        """A line through points given by their values; `title` is shown to who points at it."""
        places = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        faint = f' stroke-opacity="{opacity:g}"' if opacity < 1 else ""
        start = f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width:g}"{_dashed(dashes)}{faint}'
        return f"{start}><title>{escape(title)}</title></polyline>" if title else f"{start}/>"

    def dot(self, x: float, y: float, colour: str, title: str) -> str:
        """A point given by its values; `title` is shown to who points at it."""
        place = f'cx="{self.x(x):.1f}" cy="{self.y(y):.1f}"'
        return f'<circle {place} r="3.5" fill="{colour}"><title>{escape(title)}</title></circle>'


def document(
    width: float, height: float, label: str, parts: Iterable[str], *, columns: int = 0
) -> str:
    """The whole picture on a white ground; `label` says what it shows to who cannot see it.

    `columns` is told where the marks with titles are a grid, row by row: a page moves through them with the arrow keys.
    """
    grid = f' data-columns="{columns}"' if columns else ""
    start = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}" '
        f'font-family="sans-serif" font-size="11" role="img" aria-label="{escape(label)}"{grid}>'
    )
    ground = f'<rect width="{width:g}" height="{height:g}" fill="{GROUND}"/>'
    return "\n".join([start, ground, *parts, "</svg>"]) + "\n"


def line(
    x: float, y: float, end_x: float, end_y: float, colour: str, width: float, *, dashes: str = ""
) -> str:
    """A straight line between two pixels."""
    return (
        f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{end_x:.1f}" y2="{end_y:.1f}" stroke="{colour}" '
        f'stroke-width="{width:g}"{_dashed(dashes)}/>'
    )


def text(
    x: float, y: float, words: str, colour: str, anchor: str = "start", *, bold: bool = False
) -> str:
    """Words on a baseline; `anchor` is start, middle or end."""
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'


def rectangle(
    x: float,
    y: float,
    width: float,
    height: float,
    colour: str,
    *,
    opacity: float = 1.0,
    title: str = "",
) -> str:
    """A filled rectangle by its upper left corner; `title` is shown to who points at it."""
    faint = f' fill-opacity="{opacity:.2f}"' if opacity < 1 else ""
    start = f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"{faint}'
    return f"{start}><title>{escape(title)}</title></rect>" if title else f"{start}/>"


def strokes(path: str, colour: str, width: float) -> str:
    """Lines along an SVG path, which the caller has written from numbers."""
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"/>'


def legend(
    x: float, y: float, words: str, colour: str, width: float, *, dashes: str = ""
) -> Iterator[str]:
    """A piece of a line and what it stands for."""
    yield line(x, y, x + _LEGEND_SAMPLE, y, colour, width, dashes=dashes)
    yield text(x + _LEGEND_INDENT, y + 4, words, INK)


def colour_of(index: int) -> str:
    """The colour of the line with this number; they come round again."""
    return COLOURS[index % len(COLOURS)]


def linear_ticks(high: float, most: int = 6) -> list[float]:
    """From 0 in even steps of 1, 2 or 5 times a power of ten, up to the last that is not above `high`, at most so many steps."""
    decade = 10.0 ** math.floor(math.log10(high / most))
    step = next(factor * decade for factor in (1, 2, 5, 10) if factor * decade * most >= high)
    count = math.floor(high / step + 1e-9)
    return [float(f"{index * step:.12g}") for index in range(count + 1)]


def logarithmic_ticks(low: float, high: float) -> list[float]:
    """Numbers 1, 2 and 5 times a power of ten in the range; the powers alone where there would be many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [
        step * 10.0**decade
        for decade in decades
        for step in (1, 2, 5)
        if low <= step * 10.0**decade <= high
    ]
    powers = [tick for tick in ticks if math.isclose(math.log10(tick) % 1, 0, abs_tol=1e-9)]
    return powers if len(ticks) > 10 else ticks


def spaced(values: Sequence[int], place: Callable[[float], float], room: float) -> list[int]:
    """The values whose labels, so wide, do not run into the one before."""
    kept = [values[0]]
    for value in values[1:]:
        if place(value) - place(kept[-1]) >= room:
            kept.append(value)
    return kept


def _dashed(dashes: str) -> str:
    return f' stroke-dasharray="{dashes}"' if dashes else ""
