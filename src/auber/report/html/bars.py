"""Figures along one axis: dev scores with intervals and single runs, where the time went, and what was removed when."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from auber.export import charts
from auber.report.html.palette import GAIN, LOSS
from auber.run.records import TIME_PARTS

_ROW, _TOP = 22.0, 8.0
_LABEL_WIDTH, _PLOT_WIDTH, _TIMES_WIDTH = 106.0, 230.0, 190.0
_WIDEST_INTERVAL = 15.0  # points
_LETTER = 6.2  # the width of one, on average

# The parts of a run's time in words, as a result names them, and what it does not name.
PARTS = {**{name: part.words for name, part in TIME_PARTS.items()}, "other": "other"}
_PART_COLOURS = {
    "first": charts.COLOURS[4],
    "timing": "#4aa3df",
    "choosing": "#d1638f",
    "scouts": "#2f8f8f",
    "rewards": charts.COLOURS[0],
    "agent": charts.COLOURS[1],
    "rewind": "#9ac04a",
    "layer_tuning": charts.COLOURS[2],
    "last": charts.COLOURS[3],
    "evaluation": charts.INK,
    "other": charts.GREY,
}


@dataclass(frozen=True)
class ScoreRow:
    """One method or run: its single scores in points, and what stands for all of them."""

    name: str
    singles: tuple[tuple[str, float], ...]  # (what it is of, score)
    mean: float
    low: float | None
    high: float | None
    strong: bool = False  # the one the page is about


def draw_scores(
    rows: Sequence[ScoreRow],
    *,
    x_title: str,
    majority: float | None,
    label: str,
    interval: str = "95 % interval",
) -> str:
    """A row for each: open dots are single runs, the filled one their mean, the bar its interval, which is called so.

    The axis is made for the scores and for intervals that are not wide; one that reaches beyond it ends in an arrow.
    """
    scores = [score for row in rows for _, score in row.singles] + (
        [] if majority is None else [majority]
    )
    scores += [end for row in rows for end in _narrow_interval(row)]
    low, high = min(scores), max(scores)
    room = max(0.08 * (high - low), 0.5)
    axis = charts.Scale(low - room, high + room, _LABEL_WIDTH, _LABEL_WIDTH + _PLOT_WIDTH)
    bottom = _TOP + _ROW * len(rows)
    ticks = _ticks(axis.low, axis.high)
    parts = [charts.line(axis(tick), _TOP, axis(tick), bottom, charts.FAINT, 1) for tick in ticks]
    parts += [
        charts.text(axis(tick), bottom + 14, f"{tick:g}", charts.GREY, "middle") for tick in ticks
    ]
    parts.append(
        charts.text((axis.start + axis.end) / 2, bottom + 29, x_title, charts.INK, "middle")
    )
    if majority is not None:
        parts.append(
            charts.line(
                axis(majority),
                _TOP - 4,
                axis(majority),
                bottom,
                charts.GREY,
                1,
                dashes=charts.DASHES,
            )
        )
    for index, row in enumerate(rows):
        parts += _score_row(axis, _TOP + _ROW * (index + 0.5), row)
    legend = bottom + 46
    parts += _score_legend(legend, rows, interval)
    if majority is not None:
        parts += charts.legend(
            _LABEL_WIDTH,
            legend + 16,
            f"majority class, {majority:.2f}",
            charts.GREY,
            1,
            dashes=charts.DASHES,
        )
        legend += 16
    return charts.document(_LABEL_WIDTH + _PLOT_WIDTH + 14, legend + 12, label, parts)


def _narrow_interval(row: ScoreRow) -> tuple[float, ...]:
    """The ends of an interval that the axis should have room for: that of two seeds would push all scores together."""
    if row.low is None or row.high is None or row.high - row.low > _WIDEST_INTERVAL:
        return ()
    return row.low, row.high


def _score_row(axis: charts.Scale, y: float, row: ScoreRow) -> Iterator[str]:
    yield charts.text(
        _LABEL_WIDTH - 10,
        y + 4,
        shortened(row.name, _LABEL_WIDTH - 10),
        charts.INK,
        "end",
        bold=row.strong,
    )
    words = f"{row.name}: {row.mean:.2f}"
    if row.low is not None and row.high is not None:
        words += f", interval {row.low:.2f} to {row.high:.2f}"
        yield from _interval(axis, y, row.low, row.high)
    if len(row.singles) > 1:
        words += f", {len(row.singles)} runs"
        for name, score in row.singles:
            title = f"{row.name}, {name}: {score:.2f}"
            yield _dot(axis(score), y, 3.2, GAIN, title, hollow=True)
    yield _dot(axis(row.mean), y, 4.0, LOSS if row.strong else GAIN, words)


def _interval(axis: charts.Scale, y: float, low: float, high: float) -> Iterator[str]:
    start, end = max(axis(low), axis.start), min(axis(high), axis.end)
    yield charts.line(start, y, end, y, charts.GREY, 2)
    for place, inside, direction in ((start, low >= axis.low, 1), (end, high <= axis.high, -1)):
        if inside:
            yield charts.line(place, y - 4, place, y + 4, charts.GREY, 2)
        else:
            yield charts.strokes(
                f"M{place + 5 * direction:.1f} {y - 4:.1f}l{-5 * direction} 4l{5 * direction} 4",
                charts.GREY,
                1.5,
            )


def _dot(
    x: float, y: float, radius: float, colour: str, title: str, *, hollow: bool = False
) -> str:
    fill = (
        f'fill="{charts.GROUND}" stroke="{colour}" stroke-width="1.2"'
        if hollow
        else f'fill="{colour}"'
    )
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" {fill}><title>{escape(title)}</title></circle>'


def _score_legend(y: float, rows: Sequence[ScoreRow], interval: str) -> Iterator[str]:
    """What the marks are, those that are there."""
    several = any(len(row.singles) > 1 for row in rows)
    x = _LABEL_WIDTH - 30
    yield f'<circle cx="{x + 6:.1f}" cy="{y:.1f}" r="4" fill="{GAIN}"/>'
    yield charts.text(x + 14, y + 4, "mean" if several else "score", charts.INK)
    if several:
        yield f'<circle cx="{x + 60:.1f}" cy="{y:.1f}" r="3.2" fill="{charts.GROUND}" stroke="{GAIN}" stroke-width="1.2"/>'
        yield charts.text(x + 68, y + 4, "one run", charts.INK)
    if any(row.low is not None for row in rows):
        yield charts.line(x + 124, y, x + 146, y, charts.GREY, 2)
        yield charts.text(x + 151, y + 4, interval, charts.INK)


def draw_times(rows: Sequence[tuple[str, Mapping[str, float]]], *, label: str) -> str:
    """A bar for each (name, seconds by part), cut into the parts that the time went into."""
    longest = max(sum(parts.values()) for _, parts in rows) or 1.0
    axis = charts.Scale(0, longest, _LABEL_WIDTH, _LABEL_WIDTH + _TIMES_WIDTH)
    bottom = _TOP + _ROW * len(rows)
    drawn: list[str] = list(_seconds_axis(axis, bottom))
    for index, (name, seconds) in enumerate(rows):
        y, spent = _TOP + _ROW * index + 3, 0.0
        drawn.append(
            charts.text(
                _LABEL_WIDTH - 10, y + 12, shortened(name, _LABEL_WIDTH - 10), charts.INK, "end"
            )
        )
        for part, words in PARTS.items():
            if seconds.get(part, 0.0) > 0:
                title = f"{name}, {words}: {seconds[part]:.1f} s of {sum(seconds.values()):.1f} s"
                start, end = axis(spent), axis(spent + seconds[part])
                drawn.append(
                    charts.rectangle(
                        start, y, end - start, _ROW - 6, _PART_COLOURS[part], title=title
                    )
                )
                spent += seconds[part]
        drawn.append(charts.text(axis(spent) + 5, y + 12, f"{spent:.0f} s", charts.GREY))
    used = [part for part in PARTS if any(seconds.get(part, 0.0) > 0 for _, seconds in rows)]
    legend = bottom + 48
    for index, part in enumerate(used):
        x, y = _LABEL_WIDTH - 60 + 145 * (index % 2), legend + 16 * (index // 2)
        drawn += [
            charts.rectangle(x, y - 8, 11, 10, _PART_COLOURS[part]),
            charts.text(x + 16, y + 1, PARTS[part], charts.INK),
        ]
    height = legend + 16 * math.ceil(len(used) / 2)
    return charts.document(_LABEL_WIDTH + _TIMES_WIDTH + 46, height, label, drawn)


@dataclass(frozen=True)
class TimelineRow:
    """One stage of a run on its time."""

    name: str
    search_seconds: float
    tuning_seconds: float
    seconds: float  # with what is neither
    note: str  # what it did, in a few characters
    title: str  # what it did, in full


def draw_timeline(rows: Sequence[TimelineRow], *, label: str) -> str:
    """The stages one below the other, each where its time lies: searching, then tuning."""
    total = sum(row.seconds for row in rows) or 1.0
    left, height = 64.0, 17.0
    axis = charts.Scale(0, total, left, left + 210)
    bottom = _TOP + height * len(rows)
    parts = list(_seconds_axis(axis, bottom))
    spent = 0.0
    for index, row in enumerate(rows):
        y = _TOP + height * index
        parts.append(charts.text(left - 8, y + 12, row.name, charts.INK, "end"))
        start, middle = axis(spent), axis(spent + row.search_seconds)
        end, whole = (
            axis(spent + row.search_seconds + row.tuning_seconds),
            axis(spent + row.seconds),
        )
        parts.append(
            charts.rectangle(
                start, y + 2, max(whole - start, 1.5), height - 5, charts.FAINT, title=row.title
            )
        )
        if middle > start:
            parts.append(
                charts.rectangle(start, y + 2, middle - start, height - 5, charts.COLOURS[0])
            )
        if end > middle:
            parts.append(
                charts.rectangle(middle, y + 2, end - middle, height - 5, charts.COLOURS[2])
            )
        parts.append(charts.text(left + 218, y + 12, row.note, charts.GREY))
        spent += row.seconds
    legend = bottom + 48
    for index, (words, colour) in enumerate(
        (("search", charts.COLOURS[0]), ("tuning", charts.COLOURS[2]))
    ):
        parts.append(charts.rectangle(left + 80 * index, legend - 8, 11, 10, colour))
        parts.append(charts.text(left + 16 + 80 * index, legend + 1, words, charts.INK))
    return charts.document(left + 210 + 84, legend + 10, label, parts)


def _seconds_axis(axis: charts.Scale, bottom: float) -> Iterator[str]:
    for tick in charts.linear_ticks(axis.high, 5):
        yield charts.line(axis(tick), _TOP, axis(tick), bottom, charts.FAINT, 1)
        yield charts.text(axis(tick), bottom + 14, f"{tick:g}", charts.GREY, "middle")
    yield charts.text((axis.start + axis.end) / 2, bottom + 29, "seconds", charts.INK, "middle")


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers in a range that need not begin at 0."""
    steps = charts.linear_ticks(high - low, 5)
    step = steps[1] if len(steps) > 1 else high - low
    return [
        float(f"{index * step:.12g}")
        for index in range(math.ceil(low / step), math.floor(high / step) + 1)
    ]


def shortened(name: str, width: float) -> str:
    """A name that fits; the end of a long one is the part that tells it from others."""
    most = int(width / _LETTER)
    return name if len(name) <= most else "…" + name[1 - most :]
