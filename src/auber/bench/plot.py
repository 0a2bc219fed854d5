"""Times against sizes on double logarithmic axes: the same bytes from the same numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from auber.bench.record import GrowthPoint, GrowthSeries
from auber.export import charts

_PANEL_WIDTH, _PANEL_HEIGHT = 250, 230
_LEFT, _TITLE, _GAP, _BOTTOM = 64, 20, 66, 46
_LEGEND_LINE, _SLOPE_LINE = 18, 15
_LABEL_WIDTH = 36


def draw_growth(lines: Sequence[tuple[str, Sequence[GrowthSeries]]]) -> str:
    """One panel for each size that was changed, in it one line for each (label, series)."""
    axes = [series.axis for series in lines[0][1]]
    width = _LEFT + len(axes) * (_PANEL_WIDTH + _GAP) - _GAP + 16
    top = (
        _TITLE + _SLOPE_LINE * len(lines) + 10
    )  # the slopes stand above the panel, where no line can cross them
    bottom = top + _PANEL_HEIGHT + _BOTTOM
    parts: list[str] = []
    for place, axis in enumerate(axes):
        drawn = [
            (index, series) for index, (_, all_series) in enumerate(lines) for series in all_series
        ]
        here = [(index, series) for index, series in drawn if series.axis == axis]
        parts += _GrowthPanel(_LEFT + place * (_PANEL_WIDTH + _GAP), top, axis, here).draw()
    for index, (label, _) in enumerate(lines):
        parts += charts.legend(
            _LEFT, bottom + _LEGEND_LINE * index, label, charts.colour_of(index), 2
        )
    words = "in proportion to the first point; dotted: the floor, the arithmetic at the device's matrix rate"
    parts += charts.legend(
        _LEFT, bottom + _LEGEND_LINE * len(lines), words, charts.GREY, 1, dashes=charts.DASHES
    )
    height = bottom + _LEGEND_LINE * (len(lines) + 1)
    return charts.document(
        width, height, "Milliseconds a reward against rows, layers and heads", parts
    )


class _GrowthPanel:
    """One pair of axes with its lines; both axes are logarithmic."""

    def __init__(
        self, left: float, top: float, axis: str, lines: Sequence[tuple[int, GrowthSeries]]
    ) -> None:
        self._left, self._axis, self._lines = left, axis, lines
        points = [point for _, series in lines for point in series.points]
        self._sizes = sorted({point.size for point in points})
        times = [
            time for point in points for time in (point.milliseconds, point.floor_milliseconds)
        ]
        # Room above and below, at least a factor of two, so that a flat line does not fill the panel with noise.
        self._low, self._high = min(times) / 1.5, max(times) * 1.5
        self._panel = charts.Panel(
            charts.Scale(
                self._sizes[0] / 1.15,
                self._sizes[-1] * 1.15,
                left,
                left + _PANEL_WIDTH,
                logarithmic=True,
            ),
            charts.Scale(self._low, self._high, top + _PANEL_HEIGHT, top, logarithmic=True),
        )

    def draw(self) -> Iterator[str]:
        """The axes, then each line with its points, its fit and linear growth."""
        title = f"ms a reward by {self._axis}"
        yield charts.text(
            self._left + _PANEL_WIDTH / 2, _TITLE, title, charts.INK, "middle", bold=True
        )
        yield from self._panel.axes(
            x_title=self._axis,
            x_marks=self._sizes,
            x_labels=[
                (size, f"{size:,}")
                for size in charts.spaced(self._sizes, self._panel.x, _LABEL_WIDTH)
            ],
            y_labels=[
                (value, f"{value:g}") for value in charts.logarithmic_ticks(self._low, self._high)
            ],
        )
        for place, (index, series) in enumerate(self._lines):
            yield from self._draw_series(place, charts.colour_of(index), series)

    def _draw_series(self, place: int, colour: str, series: GrowthSeries) -> Iterator[str]:
        first, last = series.points[0], series.points[-1]
        yield self._draw_linear(first, last)
        # The fitted line goes through the points' centre of gravity on the logarithmic axes.
        centre_size = math.exp(
            sum(math.log(point.size) for point in series.points) / len(series.points)
        )
        centre_time = math.exp(
            sum(math.log(point.milliseconds) for point in series.points) / len(series.points)
        )
        start, end = (
            centre_time * (size / centre_size) ** series.exponent
            for size in (first.size, last.size)
        )
        yield self._panel.line((first.size, start), (last.size, end), colour, 1.5)
        floor = [(point.size, point.floor_milliseconds) for point in series.points]
        yield self._panel.curve(floor, colour, 1, dashes=charts.DOTS)
        for point in series.points:
            title = f"{point.size:,} {series.axis}: {point.milliseconds:.3g} ms"
            yield self._panel.dot(point.size, point.milliseconds, colour, title)
        note = f"slope {series.exponent:.2f}, floor {series.floor_exponent:.2f}"
        yield charts.text(self._left, _TITLE + _SLOPE_LINE * (place + 1), note, colour)

    def _draw_linear(self, first: GrowthPoint, last: GrowthPoint) -> str:
        """The dashed line of slope 1, cut where it leaves the panel."""
        end = min(last.size, first.size * self._high / first.milliseconds)
        top = first.milliseconds * end / first.size
        start = (first.size, first.milliseconds)
        return self._panel.line(start, (end, top), charts.GREY, 1, dashes=charts.DASHES)
