"""The record of a replay of searches, its summary and its figure."""

from __future__ import annotations

import itertools
import textwrap
from statistics import fmean
from typing import Annotated, Literal

import pandas as pd
from matplotlib.figure import Figure
from pydantic import ConfigDict, Field

from auber.metrics.statistics import summary
from auber.report.figures import COLOURS, add_legend, make_figure, style
from auber.system.records import Count, Name, Number, Record

_LABELS = {
    "surrogate": "surrogate",
    "evolution": "evolution",
    "greedy": "greedy",
    "random": "random masks, in expectation",
    "best-agent": "DQN, best of six settings",
    "default": "DQN, preset default",
    "paper": "DQN, preset paper",
    "reference": "DQN, preset reference",
}


class _Measurement(Record):
    model_config = ConfigDict(extra="ignore")  # a reader needs less than a replay keeps


class _Mean(_Measurement):
    mean: Number
    plays: tuple[Number, ...] | None = None  # None: there is one play


class _Search(_Measurement):
    regret: tuple[Number, ...]
    after_50: _Mean = Field(validation_alias="50")
    after_100: _Mean = Field(validation_alias="100")
    after_200: _Mean = Field(validation_alias="200")
    after_300: _Mean = Field(validation_alias="300")

    @property
    def after(self) -> dict[int, _Mean]:
        """The regret after a number of rewards."""
        return {50: self.after_50, 100: self.after_100, 200: self.after_200, 300: self.after_300}


class _Layer(_Measurement):
    searches: dict[Name, _Search]


class Panel(_Measurement):
    """The replays on the layers of one model, task and protocol."""

    model: Name
    task: Name
    metric: Name
    protocol: Name
    units: Name = "heads"
    layers: Annotated[tuple[_Layer, ...], Field(min_length=1)]
    mean: dict[Name, _Search]


class Regret(_Measurement):
    """How far searches stay below the best mask of a layer, in points."""

    format: Literal[1]
    kind: Literal["auber regret"]
    seeds: Count
    rewards: tuple[Count, ...]
    panels: Annotated[tuple[Panel, ...], Field(min_length=1)]


def summarise(regret: Regret) -> pd.DataFrame:
    """Return the mean regret of each search over the layers of a model, all tasks together.

    The interval is a 95 % t interval over the seeds of the search.
    """
    rows = []
    every = sorted(regret.panels, key=_place_of)
    for place, panels in itertools.groupby(every, _place_of):
        layers = [layer for panel in panels for layer in panel.layers]
        for name in layers[0].searches:
            row = dict(zip(("model", "units", "protocol"), place, strict=True))
            row |= {"layers": str(len(layers)), "player": _label(name)}
            for budget in layers[0].searches[name].after:
                found = [layer.searches[name].after[budget] for layer in layers]
                row[f"after {budget}"] = _describe(found)
            rows.append(row)
    return pd.DataFrame(rows)


def draw_regret(regret: Regret) -> Figure:
    """Draw the mean regret of each search over the rewards."""
    names = dict.fromkeys(name for panel in regret.panels for name in panel.mean)
    colours = dict(zip(names, itertools.cycle(COLOURS), strict=False))
    with style():
        figure, every = make_figure(len(regret.panels), 2.6, 2.2, most=3, room=(0.0, 0.3))
        for axes, panel in zip(every, regret.panels, strict=True):
            title = f"{panel.task}: {panel.model}, {panel.units}, {panel.protocol}"
            axes.set_title(textwrap.fill(title, 36))
            axes.set(xlabel="rewards", ylabel=f"regret, points of {panel.metric}")
            for name, search in panel.mean.items():
                axes.plot(regret.rewards, search.regret, color=colours[name], label=_label(name))
                means = [found.mean for found in search.after.values()]
                axes.plot([*search.after], means, "o", color=colours[name], markersize=3)
        add_legend(figure, *every)
    return figure


def _place_of(panel: Panel) -> tuple[str, str, str]:
    return panel.model, panel.units, panel.protocol


def _describe(layers: list[_Mean]) -> str:
    """Format the mean over layers, with half of its interval over seeds."""
    mean = f"{fmean(layer.mean for layer in layers):.3f}"
    if any(layer.plays is None for layer in layers):
        return mean
    by_seed = zip(*(layer.plays or () for layer in layers), strict=True)
    found = summary([fmean(plays) for plays in by_seed])
    return mean if found.high is None else f"{mean} ± {found.high - found.mean:.3f}"


def _label(search: str) -> str:
    return _LABELS.get(search, search)
