"""Times against sizes on double logarithmic axes, as an SVG written by hand: the same bytes from the same numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape

from auber.bench.record import GrowthPoint, GrowthSeries

_PANEL_WIDTH, _PANEL_HEIGHT = 250, 230
_LEFT, _TITLE, _GAP, _BOTTOM = 64, 20, 66, 46
_LEGEND_LINE, _SLOPE_LINE = 18, 15
_LABEL_WIDTH = 36
_COLOURS = ("#0b5fa5", "#b5482a", "#3a7d34", "#7a4fa3", "#8a6d00")
_GREY, _FAINT, _INK = "#777777", "#e4e4e4", "#222222"


def draw_growth(lines: Sequence[tuple[str, Sequence[GrowthSeries]]]) -> str:
    """One panel for each size that was changed, in it one line for each (label, series)."""
    axes = [series.axis for series in lines[0][1]]
    width = _LEFT + len(axes) * (_PANEL_WIDTH + _GAP) - _GAP + 16
    top = _TITLE + _SLOPE_LINE * len(lines) + 10  # the slopes stand above the panel, where no line can cross them
    height = top + _PANEL_HEIGHT + _BOTTOM + _LEGEND_LINE * (len(lines) + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11" role="img" aria-label="Milliseconds a reward against rows, layers and heads">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for place, axis in enumerate(axes):
        drawn = [(index, series) for index, (_, all_series) in enumerate(lines) for series in all_series]
        here = [(index, series) for index, series in drawn if series.axis == axis]
        parts += _Panel(_LEFT + place * (_PANEL_WIDTH + _GAP), top, axis, here).draw()
    legend = top + _PANEL_HEIGHT + _BOTTOM
    for index, (label, _) in enumerate(lines):
        y = legend + _LEGEND_LINE * index
        parts.append(_line(_LEFT, y, _LEFT + 24, y, _colour(index), 2))
        parts.append(_text(_LEFT + 32, y + 4, label, _INK))
    y = legend + _LEGEND_LINE * len(lines)
    parts.append(_line(_LEFT, y, _LEFT + 24, y, _GREY, 1, dashed=True))
    words = "in proportion to the first point; dotted: the floor, the arithmetic at the device's matrix rate"
    parts.append(_text(_LEFT + 32, y + 4, words, _INK))
    return "\n".join([*parts, "</svg>"]) + "\n"


class _Panel:
    """One pair of axes with its lines; both axes are logarithmic."""

    def __init__(self, left: float, top: float, axis: str, lines: Sequence[tuple[int, GrowthSeries]]) -> None:
        self._left, self._top, self._axis, self._lines = left, top, axis, lines
        points = [point for _, series in lines for point in series.points]
        self._sizes = sorted({point.size for point in points})
        times = [time for point in points for time in (point.milliseconds, point.floor_milliseconds)]
        # Room above and below, at least a factor of two, so that a flat line does not fill the panel with noise.
        self._low, self._high = min(times) / 1.5, max(times) * 1.5

    def draw(self) -> Iterator[str]:
        """The axes, then each line with its points, its fit and linear growth."""
        bottom, right = self._top + _PANEL_HEIGHT, self._left + _PANEL_WIDTH
        yield _text(self._left + _PANEL_WIDTH / 2, _TITLE, f"ms a reward by {self._axis}", _INK, "middle", bold=True)
        for value in _ticks(self._low, self._high):
            y = self._y(value)
            yield _line(self._left, y, right, y, _FAINT, 1)
            yield _text(self._left - 6, y + 4, f"{value:g}", _GREY, "end")
        for size in self._sizes:
            x = self._x(size)
            yield _line(x, bottom, x, bottom + 4, _GREY, 1)
        for size in _spaced(self._sizes, self._x):
            yield _text(self._x(size), bottom + 16, f"{size:,}", _GREY, "middle")
        yield _text(self._left + _PANEL_WIDTH / 2, bottom + 32, self._axis, _INK, "middle")
        yield _line(self._left, bottom, right, bottom, _GREY, 1)
        yield _line(self._left, self._top, self._left, bottom, _GREY, 1)
        for place, (index, series) in enumerate(self._lines):
            yield from self._draw_series(place, _colour(index), series)

    def _draw_series(self, place: int, colour: str, series: GrowthSeries) -> Iterator[str]:
        first, last = series.points[0], series.points[-1]
        yield self._draw_linear(first, last)
        # The fitted line goes through the points' centre of gravity on the logarithmic axes.
        centre_size = math.exp(sum(math.log(point.size) for point in series.points) / len(series.points))
        centre_time = math.exp(sum(math.log(point.milliseconds) for point in series.points) / len(series.points))
        start, end = (centre_time * (size / centre_size) ** series.exponent for size in (first.size, last.size))
        yield _line(self._x(first.size), self._y(start), self._x(last.size), self._y(end), colour, 1.5)
        floor = " ".join(f"{self._x(p.size):.1f},{self._y(p.floor_milliseconds):.1f}" for p in series.points)
        yield f'<polyline points="{floor}" fill="none" stroke="{colour}" stroke-width="1" stroke-dasharray="1 3"/>'
        for point in series.points:
            title = f"{point.size:,} {series.axis}: {point.milliseconds:.3g} ms"
            x, y = self._x(point.size), self._y(point.milliseconds)
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"><title>{escape(title)}</title></circle>'
        note = f"slope {series.exponent:.2f}, floor {series.floor_exponent:.2f}"
        yield _text(self._left, _TITLE + _SLOPE_LINE * (place + 1), note, colour)

    def _draw_linear(self, first: GrowthPoint, last: GrowthPoint) -> str:
        """The dashed line of slope 1, cut where it leaves the panel."""
        end = min(last.size, first.size * self._high / first.milliseconds)
        top = first.milliseconds * end / first.size
        return _line(
            self._x(first.size), self._y(first.milliseconds), self._x(end), self._y(top), _GREY, 1, dashed=True
        )

    def _x(self, size: float) -> float:
        low, high = math.log(self._sizes[0] / 1.15), math.log(self._sizes[-1] * 1.15)
        return self._left + _PANEL_WIDTH * (math.log(size) - low) / (high - low)

    def _y(self, value: float) -> float:
        low, high = math.log(self._low), math.log(self._high)
        return self._top + _PANEL_HEIGHT * (high - math.log(value)) / (high - low)


def _ticks(low: float, high: float) -> list[float]:
    """Numbers 1, 2 and 5 times a power of ten in the range; the powers alone where there would be many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**decade for decade in decades for step in (1, 2, 5) if low <= step * 10.0**decade <= high]
    powers = [tick for tick in ticks if math.isclose(math.log10(tick) % 1, 0, abs_tol=1e-9)]
    return powers if len(ticks) > 10 else ticks


def _spaced(sizes: Sequence[int], place: Callable[[float], float]) -> list[int]:
    """The sizes whose labels do not run into the one before."""
    kept = [sizes[0]]
    for size in sizes[1:]:
        if place(size) - place(kept[-1]) >= _LABEL_WIDTH:
            kept.append(size)
    return kept


def _colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]


def _line(x: float, y: float, end_x: float, end_y: float, colour: str, width: float, *, dashed: bool = False) -> str:
    dashes = ' stroke-dasharray="4 4"' if dashed else ""
    return (
        f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{end_x:.1f}" y2="{end_y:.1f}" stroke="{colour}" '
        f'stroke-width="{width:g}"{dashes}/>'
    )


def _text(x: float, y: float, words: str, colour: str, anchor: str = "start", *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'
