"""Results of `benchmarks.regret` as a table: what each search misses of a layer's best mask, in the mean over the layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from auber.errors import RunError
from auber.report.columns import Column, Table, TableSection
from auber.report.regret_figure import BUDGETS, draw_regret, label_of
from auber.report.results_file import ResultsFile
from auber.run.fields import Fields

KIND = "auber regret"
FORMAT = 1

# What is told of a search, by its name in a result.
_QUANTITIES = {
    **{str(budget): f"after {budget} rewards" for budget in BUDGETS},
    "rollout": "roll-out",
    "choice": "plan",
}
_NOTES = (
    "Points (100 times the metric) that the best mask seen after so many different rewards is below the layer's best, mean over "
    "the layers; roll-out: the agent's greedy play at the end; plan: what the search ends with. In brackets the 95 % t interval "
    "over the layers, which speaks of layers like these and not of other tasks or models.",
    "Regret is about the reward, on rows the search may look at: a lower one need not give a better dev score.",
)


def regret_table(file: ResultsFile) -> Table:
    """The searches on each task, a section for each model and protocol."""
    read = Fields(file.name, file.content)
    if read.get("format", int) != FORMAT:
        raise RunError(
            f"{file.name}: format {FORMAT} can be read, found {read.get('format', int)}; measure it again"
        )
    sections: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for number, panel in enumerate(read.get("panels", list)):
        found = Fields(f"{file.name}: panel {number}", panel)
        place = (found.get("model", str), found.get("protocol", str))
        sections.setdefault(place, []).extend(_rows(file.name, found))
    columns = (
        Column("task"),
        Column("layers", "number"),
        Column("search"),
        *map(Column, _QUANTITIES.values()),
    )
    return Table(
        "regret",
        f"Regret in points, {read.get('seeds', int)} plays of each agent on each layer",
        columns,
        tuple(TableSection(*place, tuple(rows)) for place, rows in sections.items()),
        _NOTES,
        empty="No search was replayed.",
    )


def regret_figure(file: ResultsFile) -> str:
    """The drawing of a result."""
    try:
        return draw_regret(file.content)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise RunError(
            f"{file.name}: must be a result of 'auber regret', found damage ({error!r}); measure it again"
        ) from error


def _rows(where: str, panel: Fields) -> Iterable[tuple[Any, ...]]:
    task, layers = panel.get("task", str), len(panel.get("layers", list))
    for search in panel.get("mean", dict):
        cells = tuple(_cell(panel, f"mean.{search}.{quantity}") for quantity in _QUANTITIES)
        yield (task, layers, _label(where, search), *cells)


def _label(where: str, search: str) -> str:
    try:
        return label_of(search)
    except KeyError:
        raise RunError(
            f"{where}: a search must be a preset, greedy or random, found {search!r:.40}; measure it again"
        ) from None


def _cell(panel: Fields, key: str) -> str | None:
    if panel.find(key, dict) is None:
        return None
    mean, ends = panel.get(f"{key}.mean", float), panel.items(f"{key}.over_layers.interval", float)
    return f"{mean:.2f}" + (f" ({ends[0]:.2f} to {ends[1]:.2f})" if len(ends) == 2 else "")


def sources_of(file: ResultsFile) -> Sequence[str]:
    """The commands that recorded the scores and the one that replayed them."""
    read = Fields(file.name, file.content)
    recorded = [
        Fields(f"{file.name}: recorded", run).find("command", str)
        for panel in read.get("panels", list)
        for run in Fields(file.name, panel).get("recorded", list)
    ]
    commands = [*recorded, read.find("command", str)]
    return list(dict.fromkeys(command for command in commands if command))
