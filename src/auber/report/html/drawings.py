"""The figures of a page, for runs by task and by method or label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

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
    rows = {f"{task}, {name}": runs for task, of in cells.items() for name, runs in of.items()}
    if len(cells) == 1:
        rows = {name: runs for of in cells.values() for name, runs in of.items()}
    drawn: dict[str, tuple[str, Callable[[], Figure]]] = {}
    by_method = {
        task: group((run for runs in of.values() for run in runs), lambda run: run.record.title)
        for task, of in cells.items()
    }
    sizes, axis = find_sizes(by_method, pooled=section is not None)
    if any(sum(map(len, lines.values())) > 1 for lines in sizes.values()):
        drawn["sizes"] = "Score against size", partial(draw_sizes, sizes, axis)
    if section is not None and section.rows:
        drawn["scores"] = "Dev scores", partial(draw_scores, section, cells)
    maps = [
        [replace(each, title=f"{task}: {each.title}") for each in of]
        for task, of in map_heads(cells).items()
    ]
    if maps:
        drawn["heads"] = f"Heads removed in {', '.join(cells)}", partial(draw_heads, maps)
    neurons = {name: [run.record.neurons for run in runs] for name, runs in rows.items()}
    narrow = {
        name: runs
        for name, runs in rows.items()
        if any(each and each.removed for each in neurons[name])
    }
    if narrow:
        drawn["widths"] = "Feed-forward neurons left", partial(draw_widths, narrow)
    searches = {
        name: [layer for run in runs for layer, _ in run.searched if layer.gains]
        for name, runs in rows.items()
    }
    searches = {name: layers for name, layers in searches.items() if layers}
    if section is not None and searches:
        drawn["search"] = "Searches", partial(draw_searches, searches)
    elif section is None:
        for number, (name, layers) in enumerate(searches.items(), 1):
            by_layer = {f"layer {layer.index}": [layer] for layer in layers}
            record = rows[name][0].record
            asked, computed = record.rewards_asked, record.rewards_computed
            title = f"{name}: {asked} rewards requested, {computed} computed"
            key = "search" if len(rows) == 1 else f"search-{number}"
            drawn[key] = title, partial(draw_searches, by_layer)
    if cells:
        drawn["time"] = "Where the time of a run went", partial(draw_times, cells)
    return {name: Drawing(f"{name}{end}", *found) for name, found in drawn.items()}
