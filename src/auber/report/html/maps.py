"""Maps of heads: a square for each head, layers downwards and heads to the right, removed ones crossed.

Functions of plain numbers to SVG. What a colour says is said again by the cross, by the title of every square, and below
the map in words, so that nothing rests on colour alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from auber.export import charts
from auber.models.plan import PruningPlan
from auber.report.html.palette import GAIN, KEPT, LOSS

Scores = Mapping[int, Mapping[int, float]]  # by layer, then by head

_WIDEST = 270.0  # of the squares together
_LEFT, _RIGHT, _TOP, _AXIS, _LEGEND = 40.0, 44.0, 8.0, 34.0, 24.0
_LETTER = 6.0  # of a legend, at most on average
_CROSSED = 86.0  # a legend's cross with its word
_FAINTEST = 0.08  # a square of the lowest value is still a square


@dataclass(frozen=True)
class Grid:
    """Where the squares lie."""

    num_layers: int
    num_columns: int
    cell: float  # a square with the gap behind it

    @classmethod
    def of(cls, num_layers: int, num_columns: int, largest: float = 22.0) -> Grid:
        """Squares as large as there is room for."""
        return cls(num_layers, num_columns, min(largest, _WIDEST / num_columns))

    @property
    def width(self) -> float:
        """Of the whole drawing."""
        return _LEFT + self.num_columns * self.cell + _RIGHT

    @property
    def bottom(self) -> float:
        """Below the last layer."""
        return _TOP + self.num_layers * self.cell

    def square(self, layer: int, column: int, colour: str, opacity: float, title: str) -> str:
        """One head."""
        side = self.cell * 0.9
        x, y = self.corner(layer, column)
        return charts.rectangle(x, y, side, side, colour, opacity=opacity, title=title)

    def corner(self, layer: int, column: int) -> tuple[float, float]:
        """The upper left one of a square."""
        return _LEFT + column * self.cell, _TOP + layer * self.cell

    def crosses(self, plan: PruningPlan, colour: str) -> str:
        """A cross on every removed head, as one path."""
        side, margin = self.cell * 0.9, self.cell * 0.24
        pieces = []
        for layer, heads in plan.items():
            for head in heads:
                x, y = self.corner(layer, head)
                near, far = (x + margin, y + margin), (x + side - margin, y + side - margin)
                pieces.append(f"M{near[0]:.1f} {near[1]:.1f}L{far[0]:.1f} {far[1]:.1f}")
                pieces.append(f"M{far[0]:.1f} {near[1]:.1f}L{near[0]:.1f} {far[1]:.1f}")
        return charts.strokes("".join(pieces), colour, max(1.0, self.cell / 14)) if pieces else ""

    def axes(
        self, columns: Mapping[int, str], *, counts: Mapping[int, str], x_title: str = "head"
    ) -> Iterator[str]:
        """The numbers of layers and columns, and at the end of each layer a count."""
        middle = self.cell * 0.45
        for layer in charts.spaced(range(self.num_layers), lambda value: value * self.cell, 11):
            y = _TOP + layer * self.cell + middle + 4
            yield charts.text(_LEFT - 6, y, str(layer), charts.GREY, "end")
            if counts.get(layer):
                yield charts.text(
                    _LEFT + self.num_columns * self.cell + 4, y, counts[layer], charts.GREY
                )
        for column in charts.spaced(sorted(columns), lambda value: value * self.cell, 16):
            x = _LEFT + column * self.cell + middle
            yield charts.text(x, self.bottom + 12, columns[column], charts.GREY, "middle")
        yield charts.text(
            _LEFT + self.num_columns * self.cell / 2,
            self.bottom + 27,
            x_title,
            charts.INK,
            "middle",
        )
        yield (
            f'<text transform="translate(11 {(_TOP + self.bottom) / 2:.1f}) rotate(-90)" fill="{charts.INK}" '
            'text-anchor="middle">layer</text>'
        )


def draw_plan(
    plan: PruningPlan,
    num_layers: int,
    num_heads: int,
    *,
    title: Callable[[int, int], str],
    label: str,
) -> str:
    """Which heads were removed and which stay; at the end of each layer how many went. `title` tells all of one head."""
    grid = Grid.of(num_layers, num_heads)
    parts = [
        grid.square(
            layer, head, LOSS if head in plan.removed(layer) else KEPT, 1, title(layer, head)
        )
        for layer in range(num_layers)
        for head in range(num_heads)
    ]
    parts.append(grid.crosses(plan, charts.GROUND))
    counts = {layer: f"-{len(heads)}" for layer, heads in plan.items()}
    parts += grid.axes({head: str(head) for head in range(num_heads)}, counts=counts)
    legend = grid.bottom + _AXIS + 8
    parts += _sample(_LEFT, legend, LOSS, "removed", crossed=True)
    parts += _sample(_LEFT + 84, legend, KEPT, "kept")
    words = "right: how many went"
    parts.append(charts.text(_LEFT + 140, legend + 9, words, charts.GREY))
    width = max(
        grid.width, _LEFT + 140 + _LETTER * len(words)
    )  # few heads are narrower than their legend
    return charts.document(width, legend + _LEGEND, label, filter(None, parts), columns=num_heads)


def draw_scores(
    scores: Scores,
    plan: PruningPlan,
    num_layers: int,
    num_heads: int,
    *,
    title: Callable[[int, int], str],
    label: str,
) -> str:
    """A number for each head as a shade, from the lowest of the map to its highest; removed heads are crossed."""
    grid = Grid.of(num_layers, num_heads)
    found = [value for heads in scores.values() for value in heads.values()]
    low, high = min(found), max(found)
    parts = []
    for layer in range(num_layers):
        for head in range(num_heads):
            value = scores.get(layer, {}).get(head)
            shade = 0.0 if value is None else _FAINTEST + (1 - _FAINTEST) * _share(value, low, high)
            colour = charts.FAINT if value is None else GAIN
            parts.append(
                grid.square(layer, head, colour, 1 if value is None else shade, title(layer, head))
            )
    parts.append(grid.crosses(plan, charts.INK))
    parts += grid.axes({head: str(head) for head in range(num_heads)}, counts={})
    legend = grid.bottom + _AXIS + 8
    ends = f"{low:.3g}", f"{high:.3g}"
    parts += _ramp(_LEFT, legend, *ends)
    crossed = max(grid.width - _CROSSED, _LEFT + 90 + _LETTER * sum(map(len, ends)))
    parts += _crossed(crossed, legend)
    return charts.document(
        crossed + _CROSSED, legend + _LEGEND, label, filter(None, parts), columns=num_heads
    )


def draw_values(
    values: Scores,
    stops: Mapping[int, float],
    plan: PruningPlan,
    num_layers: int,
    num_heads: int,
    *,
    action: str,
    title: Callable[[int, int], str],
    label: str,
) -> str:
    """The agent's values of each first action, the last column that of stopping: gains in one colour, losses in another."""
    grid = Grid.of(num_layers, num_heads + 1)
    found = [*stops.values(), *(value for heads in values.values() for value in heads.values())]
    largest = max(map(abs, found)) or 1.0
    parts = []
    for layer in range(num_layers):
        for column in range(num_heads + 1):
            value = stops.get(layer) if column == num_heads else values.get(layer, {}).get(column)
            words = title(layer, column) if column < num_heads else _stop_words(layer, value)
            if value is None:
                parts.append(grid.square(layer, column, charts.FAINT, 1, words))
            else:
                shade = _FAINTEST + (1 - _FAINTEST) * abs(value) / largest
                parts.append(grid.square(layer, column, GAIN if value >= 0 else LOSS, shade, words))
    parts.append(grid.crosses(plan, charts.INK))
    columns = {**{head: str(head) for head in range(num_heads)}, num_heads: "stop"}
    parts += grid.axes(columns, counts={}, x_title=f"{action}, or stop")
    legend = grid.bottom + _AXIS + 8
    parts += _sample(_LEFT, legend, GAIN, "gain")
    parts += _sample(_LEFT + 56, legend, LOSS, f"loss, full colour at {largest:.2f}")
    crossed = max(grid.width - _CROSSED, _LEFT + 56 + 160)
    parts += _crossed(crossed, legend)
    return charts.document(
        crossed + _CROSSED, legend + _LEGEND, label, filter(None, parts), columns=num_heads + 1
    )


def draw_shares(
    counts: Scores, num_runs: int, num_layers: int, num_heads: int, *, label: str
) -> str:
    """In how many of some runs each head was removed, as a shade."""
    grid = Grid.of(num_layers, num_heads, largest=13.0)
    parts = []
    for layer in range(num_layers):
        for head in range(num_heads):
            count = counts.get(layer, {}).get(head, 0)
            title = f"layer {layer}, head {head}: removed in {count:.0f} of {num_runs}"
            colour, shade = (LOSS, count / num_runs) if count else (KEPT, 0.5)
            parts.append(grid.square(layer, head, colour, shade, title))
    parts += grid.axes({head: str(head) for head in range(num_heads)}, counts={})
    return charts.document(grid.width - 42, grid.bottom + _AXIS, label, parts, columns=num_heads)


def _share(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 1.0


def _stop_words(layer: int, value: float | None) -> str:
    return f"layer {layer}, stopping at once: " + (
        "not recorded" if value is None else f"value {value:+.3f} points"
    )


def _sample(x: float, y: float, colour: str, words: str, *, crossed: bool = False) -> Iterator[str]:
    yield charts.rectangle(x, y, 11, 11, colour)
    if crossed:
        yield charts.strokes(f"M{x + 3:.1f} {y + 3:.1f}l5 5m0 -5l-5 5", charts.GROUND, 1)
    yield charts.text(x + 16, y + 9, words, charts.INK)


def _crossed(x: float, y: float) -> Iterable[str]:
    yield charts.strokes(f"M{x + 2:.1f} {y + 2:.1f}l7 7m0 -7l-7 7", charts.INK, 1.2)
    yield charts.text(x + 14, y + 9, "removed", charts.INK)


def _ramp(x: float, y: float, low: str, high: str) -> Iterator[str]:
    """A scale from faint to full, with its ends in numbers."""
    yield charts.text(x, y + 9, low, charts.GREY)
    start, steps = x + 8 + _LETTER * len(low), 6
    for step in range(steps):
        shade = _FAINTEST + (1 - _FAINTEST) * step / (steps - 1)
        yield charts.rectangle(start + 11 * step, y, 10, 11, GAIN, opacity=shade)
    yield charts.text(start + 11 * steps + 4, y + 9, high, charts.GREY)
