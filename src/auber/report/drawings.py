"""The figures of a page, for runs by task and by method or label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from matplotlib.figure import Figure

from auber.report.analysis import Section
from auber.report.figures import (
    Cells,
    draw_heads,
    draw_scores,
    draw_searches,
    draw_sizes,
    draw_times,
    draw_widths,
    find_sizes,
    style,
    to_svg,
)
from auber.report.head_maps import map_heads
from auber.report.records import group


@dataclass(frozen=True)
class Drawing:
    """One figure; `name` is that of its files."""

    name: str
    title: str
    draw: Callable[[], Figure]

    @cached_property
    def figure(self) -> Figure:
        """The drawn figure, its layout computed once for all files."""
        figure = self.draw()
        with style():
            figure.draw_without_rendering()
        figure.set_layout_engine("none")
        return figure

    @cached_property
    def svg(self) -> str:
        """The figure as SVG."""
        return to_svg(self.figure)


def draw_part(cells: Cells, section: Section | None = None, end: str = "") -> dict[str, Drawing]:
    """Return the figures of some runs by name; a study has a section of comparisons."""
    found = {}

    def add(name: str, title: str, draw: Callable[..., Figure], *arguments: Any) -> None:
        found[name] = Drawing(f"{name}{end}", title, partial(draw, *arguments))

    by_method = {
        task: group((run for runs in of.values() for run in runs), lambda run: run.record.title)
        for task, of in cells.items()
    }
    sizes, axis = find_sizes(by_method, pooled=section is not None)
    if any(sum(map(len, lines.values())) > 1 for lines in sizes.values()):
        add("sizes", "Score against size", draw_sizes, sizes, axis)
    if section is not None and section.rows:
        add("scores", "Dev scores", draw_scores, section, cells)
    maps = [
        [replace(each, title=f"{task}: {each.title}") for each in of]
        for task, of in map_heads(cells).items()
    ]
    if maps:
        add("heads", f"Heads removed in {', '.join(cells)}", draw_heads, maps)
    rows = {
        name if len(cells) == 1 else f"{task}, {name}": runs
        for task, of in cells.items()
        for name, runs in of.items()
    }
    narrow = {
        name: runs
        for name, runs in rows.items()
        if any(run.record.neurons and run.record.neurons.removed for run in runs)
    }
    if narrow:
        add("widths", "Feed-forward neurons left", draw_widths, narrow)
    layers = {
        name: [layer for run in runs for layer, _ in run.searched if layer.gains]
        for name, runs in rows.items()
    }
    searches = {name: of for name, of in layers.items() if of}
    if section is not None and searches:
        add("search", "Searches", draw_searches, searches)
    elif section is None:
        for number, (name, of) in enumerate(searches.items(), 1):
            record = rows[name][0].record
            asked, computed = record.rewards_asked, record.rewards_computed
            title = f"{name}: {asked} rewards requested, {computed} computed"
            by_layer = {f"layer {layer.index}": [layer] for layer in of}
            add("search" if len(rows) == 1 else f"search-{number}", title, draw_searches, by_layer)
    if cells:
        add("time", "Where the time of a run went", draw_times, cells)
    return found
