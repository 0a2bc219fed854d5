"""The regret figure: one panel for each model, task and protocol, regret in points against the number of rewards.

Drawn from a result and nothing else, the same bytes each time. A strong line is the mean over layers (for an agent over its
seeds too), a faint one a single layer; dots mark the numbers of rewards of the tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from auber.config import PRESETS
from auber.export import charts

BUDGETS = (50, 100, 200, 300)  # different rewards after which searches are compared

_COLUMNS = 3  # at most
_PANEL_WIDTH, _PANEL_HEIGHT = 260, 220
_LEFT, _TOP, _GAP, _BELOW = 64, 44, 60, 62
_RIGHT = 20
_TITLE_LINE, _LEGEND_LINE = 15, 18
_ROOM = 1.05  # above the highest line


def draw_regret(result: Mapping[str, Any]) -> str:
    """The figure of a result of `benchmarks.regret`."""
    panels = result["panels"]
    searches = list(panels[0]["mean"])
    # A model fills a row: its panels come one after the other.
    columns = min(_COLUMNS, sum(panel["model"] == panels[0]["model"] for panel in panels))
    rows = -(-len(panels) // columns)
    row_height = _TOP + _PANEL_HEIGHT + _BELOW
    parts: list[str] = []
    for index, panel in enumerate(panels):
        row, column = divmod(index, columns)
        left, top = _LEFT + column * (_PANEL_WIDTH + _GAP), row * row_height + _TOP
        parts += _draw_panel(left, top, panel, result["rewards"], searches)
    legend = rows * row_height + 6
    for index, name in enumerate(searches):
        parts += charts.legend(
            _LEFT, legend + _LEGEND_LINE * index, label_of(name), charts.colour_of(index), 2
        )
    words = "thin: a single layer; strong: the mean over layers"
    parts += charts.legend(_LEFT, legend + _LEGEND_LINE * len(searches), words, charts.GREY, 1)
    width = _LEFT + columns * (_PANEL_WIDTH + _GAP) - _GAP + _RIGHT
    height = legend + _LEGEND_LINE * (len(searches) + 1)
    return charts.document(width, height, "Regret in points against the number of rewards", parts)


def label_of(search: str) -> str:
    """A search of a result in words."""
    if search in PRESETS:
        return f"agent, preset {search}"
    return {"greedy": "greedy", "random": "random masks, in expectation"}[search]


def _draw_panel(
    left: float,
    top: float,
    panel: Mapping[str, Any],
    rewards: Sequence[int],
    searches: Sequence[str],
) -> Iterator[str]:
    highest = max(
        max(layer["searches"][name]["regret"]) for layer in panel["layers"] for name in searches
    )
    high = highest * _ROOM or 1.0  # where nothing is ever missed an axis is drawn all the same
    axes = charts.Panel(
        charts.Scale(0, rewards[-1], left, left + _PANEL_WIDTH),
        charts.Scale(0, high, top + _PANEL_HEIGHT, top),
    )
    middle, title = left + _PANEL_WIDTH / 2, top - _TOP + _TITLE_LINE
    count = len(panel["layers"])
    words = f"{panel['model']}, {panel['protocol']}, {count} layer{'s' if count > 1 else ''}"
    yield charts.text(
        middle,
        title,
        f"{panel['task']}: regret, points of {panel['metric']}",
        charts.INK,
        "middle",
        bold=True,
    )
    yield charts.text(middle, title + _TITLE_LINE, words, charts.GREY, "middle")
    yield from axes.axes(
        x_title="rewards (different masks scored)",
        x_marks=BUDGETS,
        x_labels=[(budget, str(budget)) for budget in BUDGETS],
        y_labels=[(value, f"{value:g}") for value in charts.linear_ticks(high)],
    )
    for layer in panel["layers"]:
        for index, name in enumerate(searches):
            curve = zip(rewards, layer["searches"][name]["regret"], strict=True)
            title_words = f"layer {layer['layer']}, {label_of(name)}"
            yield axes.curve(curve, charts.colour_of(index), 1, opacity=0.3, title=title_words)
    for index, name in enumerate(searches):
        mean = panel["mean"][name]
        yield axes.curve(zip(rewards, mean["regret"], strict=True), charts.colour_of(index), 2)
        for budget in BUDGETS:
            value = mean[str(budget)]["mean"]
            words = f"{label_of(name)}, {budget} rewards: {value:.3g} points"
            yield axes.dot(budget, value, charts.colour_of(index), words)
