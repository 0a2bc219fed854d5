"""The record of a replay of searches, its table and its figure."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pandas as pd
from matplotlib.figure import Figure
from pydantic import ConfigDict, Field

from auber.report.figures import COLOURS, add_legend, make_figure, style
from auber.report.results_file import ResultsFile
from auber.report.tables import Table
from auber.system.records import Count, Name, Number, Record, parse

REGRET = "auber regret"  # the kind of these results
_REMEDY = "measure it again"
_OTHERS = {
    "best-agent": "agent, best of six settings",
    "surrogate": "surrogate",
    "evolution": "evolution",
    "greedy": "greedy",
    "random": "random masks, in expectation",
}


class _Measurement(Record):
    model_config = ConfigDict(extra="ignore")  # the table shows less than a replay keeps


class _Interval(_Measurement):
    interval: tuple[Number, Number] | None


class _Mean(_Measurement):
    mean: Number
    over_layers: _Interval | None = None

    def __str__(self) -> str:
        ends = self.over_layers and self.over_layers.interval
        return f"{self.mean:.2f}" + (f" ({ends[0]:.2f} to {ends[1]:.2f})" if ends else "")


class _Search(_Measurement):
    regret: tuple[Number, ...]
    after_50: _Mean = Field(validation_alias="50")
    after_100: _Mean = Field(validation_alias="100")
    after_200: _Mean = Field(validation_alias="200")
    after_300: _Mean = Field(validation_alias="300")
    rollout: _Mean | None = None
    choice: _Mean | None = None

    @property
    def after(self) -> dict[int, _Mean]:
        """The regret after a number of rewards."""
        return {50: self.after_50, 100: self.after_100, 200: self.after_200, 300: self.after_300}


class Panel(_Measurement):
    """The replays on the layers of one model, task and protocol."""

    model: Name
    task: Name
    metric: Name
    protocol: Name
    units: Name = "heads"
    layers: Annotated[tuple[dict[Name, Any], ...], Field(min_length=1)]
    mean: dict[Name, _Search]


class Regret(_Measurement):
    """How far searches stay below the best mask of a layer, in points."""

    format: Literal[1]
    seeds: Count
    rewards: tuple[Count, ...]
    panels: Annotated[tuple[Panel, ...], Field(min_length=1)]


def read_regret(file: ResultsFile) -> Regret:
    """Return a replay of searches."""
    return parse(Regret, dict(file.content), file.name, _REMEDY)


def regret_table(regret: Regret) -> Table:
    """Return the mean regret of each search on each task."""
    rows = [
        {
            "model": panel.model,
            "protocol": panel.protocol,
            "task": panel.task,
            "units": panel.units,
            "layers": len(panel.layers),
            "search": _label(name),
            **{f"after {budget} rewards": str(mean) for budget, mean in search.after.items()},
            "roll-out": str(search.rollout or ""),
            "plan": str(search.choice or ""),
        }
        for panel in regret.panels
        for name, search in panel.mean.items()
    ]
    return Table(
        "regret",
        f"Regret in points, {regret.seeds} plays of each player on each layer",
        pd.DataFrame(rows, dtype=object),
        notes=(
            "Points (100 times the metric) by which the best mask found after a number of rewards "
            "is below the best mask of the layer, mean over the layers, with its 95 % t interval "
            "over layers like these. Roll-out: the agent's greedy play at the end. Plan: the "
            "result.",
            "Regret is about the reward, on rows that the search may use; a lower regret need not "
            "give a better dev score.",
        ),
    )


def draw_regret(regret: Regret) -> Figure:
    """Draw the mean regret of each search over the rewards."""
    with style():
        figure, every = make_figure(len(regret.panels), 2.6, 2.2, most=3, room=(0.0, 0.3))
        for axes, panel in zip(every, regret.panels, strict=True):
            axes.set_title(f"{panel.task}: {panel.model}, {panel.units}, {panel.protocol}")
            axes.set(xlabel="rewards", ylabel=f"regret, points of {panel.metric}")
            for (name, search), colour in zip(panel.mean.items(), COLOURS, strict=False):
                axes.plot(regret.rewards, search.regret, color=colour, label=_label(name))
                means = [found.mean for found in search.after.values()]
                axes.plot([*search.after], means, "o", color=colour, markersize=3)
        add_legend(figure, every[0])
    return figure


def _label(search: str) -> str:
    return _OTHERS.get(search, f"agent, preset {search}")
