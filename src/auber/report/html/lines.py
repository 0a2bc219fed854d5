"""What a search found against the masks it had scored: a small panel for each layer, or all layers of many runs together."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from auber.export import charts
from auber.report.html.palette import GAIN, LOSS

Curve = Sequence[tuple[int, float]]  # (different masks scored, best so far) at each improvement

_COLUMNS, _PANEL_WIDTH, _PANEL_HEIGHT = 3, 92.0, 54.0
_LEFT, _TOP, _GAP_X, _GAP_Y, _BELOW = 34.0, 18.0, 16.0, 26.0, 60.0
_WIDE, _HIGH = 290.0, 170.0


@dataclass(frozen=True)
class LayerCurve:
    """One layer's search, as gains over what it began from in points."""

    layer: int
    curve: Curve
    scored: int  # different masks in all
    chosen: float | None  # the gain of what was removed


def draw_layers(layers: Sequence[LayerCurve], *, label: str) -> str:
    """A panel for each layer on common axes: the best gain so far as a line, what was chosen as a dot."""
    last = max(max(each.scored for each in layers), 2)
    gains = [gain for each in layers for _, gain in each.curve] + [
        each.chosen for each in layers if each.chosen is not None
    ]
    low, high = min(0.0, *gains), max(0.0, *gains) or 1.0
    room = 0.08 * (high - low)
    low, high = low - (room if low < 0 else 0), high + room
    columns = min(_COLUMNS, len(layers))
    parts: list[str] = []
    for index, each in enumerate(layers):
        row, column = divmod(index, columns)
        left, top = _LEFT + column * (_PANEL_WIDTH + _GAP_X), _TOP + row * (_PANEL_HEIGHT + _GAP_Y)
        panel = charts.Panel(
            charts.Scale(1, last, left, left + _PANEL_WIDTH),
            charts.Scale(low, high, top + _PANEL_HEIGHT, top),
        )
        ends = index + columns >= len(layers)  # nothing below it
        parts += _layer_panel(panel, each, last, high, show_x=ends, show_y=column == 0)
    rows = math.ceil(len(layers) / columns)
    bottom = _TOP + rows * (_PANEL_HEIGHT + _GAP_Y) - _GAP_Y
    width = _LEFT + columns * (_PANEL_WIDTH + _GAP_X) - _GAP_X + 12
    parts.append(
        charts.text(
            (_LEFT + width) / 2, bottom + 30, "different masks scored", charts.INK, "middle"
        )
    )
    parts += charts.legend(_LEFT, bottom + 46, "best so far", GAIN, 1.8)
    parts.append(f'<circle cx="{_LEFT + 120:.1f}" cy="{bottom + 46:.1f}" r="3" fill="{LOSS}"/>')
    parts.append(charts.text(_LEFT + 128, bottom + 50, "chosen", charts.INK))
    return charts.document(max(width, 250), bottom + _BELOW, label, parts)


def _layer_panel(
    panel: charts.Panel, each: LayerCurve, last: int, high: float, *, show_x: bool, show_y: bool
) -> Iterator[str]:
    left, right, bottom, top = panel.x.start, panel.x.end, panel.y.start, panel.y.end
    best = each.curve[-1][1] if each.curve else 0.0
    chosen = "not recorded" if each.chosen is None else f"{each.chosen:+.2f} points"
    words = (
        f"layer {each.layer}: best {best:+.2f} points after {each.scored} masks, chosen {chosen}"
    )
    yield charts.rectangle(left, top, right - left, bottom - top, charts.GROUND, title=words)
    for tick in charts.linear_ticks(high, 3):
        yield charts.line(left, panel.y(tick), right, panel.y(tick), charts.FAINT, 1)
        if show_y:
            yield charts.text(left - 5, panel.y(tick) + 4, f"{tick:g}", charts.GREY, "end")
    yield charts.line(left, panel.y(0), right, panel.y(0), charts.GREY, 1)
    yield charts.text(left, top - 4, f"layer {each.layer}", charts.INK)
    if each.chosen is not None:
        yield charts.text(right, top - 4, f"{each.chosen:+.1f}", charts.GREY, "end")
    yield panel.curve(_steps(each.curve, each.scored), GAIN, 1.8)
    if each.chosen is not None:
        place = f'cx="{panel.x(each.scored):.1f}" cy="{panel.y(each.chosen):.1f}"'
        yield f'<circle {place} r="3" fill="{LOSS}"/>'
    if show_x:
        yield charts.text(left, bottom + 13, "1", charts.GREY, "middle")
        yield charts.text(right, bottom + 13, str(last), charts.GREY, "end")


def draw_together(curves: Sequence[tuple[str, Curve, int]], *, label: str) -> str:
    """Many searches in one panel: each (name, curve in points, masks scored) faint, their mean strong."""
    last = max(max(scored for _, _, scored in curves), 2)
    high = max(max((gain for _, curve, _ in curves for _, gain in curve), default=0.0), 1e-9) * 1.05
    panel = charts.Panel(
        charts.Scale(1, last, 44, 44 + _WIDE), charts.Scale(0, high, 10 + _HIGH, 10)
    )
    ticks = [tick for tick in charts.linear_ticks(last, 5) if tick >= 1]
    parts = list(
        panel.axes(
            x_title="different masks scored",
            x_marks=ticks,
            x_labels=[(tick, f"{tick:g}") for tick in ticks],
            y_labels=[(tick, f"{tick:g}") for tick in charts.linear_ticks(high, 5)],
        )
    )
    for name, curve, scored in curves:
        end = curve[-1][1] if curve else 0.0
        title = f"{name}: best {end:+.2f} points after {scored} masks"
        parts.append(panel.curve(_steps(curve, scored), GAIN, 1, opacity=0.3, title=title))
    places = sorted({1, last, *range(10, last, 10)})
    mean = [(place, fmean(_best_at(curve, place) for _, curve, _ in curves)) for place in places]
    parts.append(panel.curve(mean, LOSS, 2.2))
    parts += charts.legend(44, _HIGH + 60, "one layer of one run", GAIN, 1)
    parts += charts.legend(200, _HIGH + 60, "mean", LOSS, 2.2)
    return charts.document(44 + _WIDE + 14, _HIGH + 72, label, parts)


def _steps(curve: Curve, scored: int) -> Iterator[tuple[float, float]]:
    """The corners of a line that stays level until the next improvement."""
    before = None
    for count, gain in curve:
        if before is not None:
            yield count, before
        yield count, gain
        before = gain
    if before is not None:
        yield scored, before


def _best_at(curve: Curve, count: int) -> float:
    place = bisect_right([at for at, _ in curve], count)
    return curve[place - 1][1] if place else 0.0
