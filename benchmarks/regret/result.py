"""Replay players on score tables: the result, its summary and its figure.

Tables of one model, task, protocol and kind of unit form a panel. All numbers are in points. A
number that differs from play to play has its value in each of them.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Annotated, Any, Literal

import pandas as pd
import torch
from matplotlib.figure import Figure
from pydantic import ConfigDict, Field

from auber.config import PRESETS, make_config
from auber.errors import ConfigError, unknown_name
from auber.metrics.statistics import summary
from auber.report.figures import COLOURS, add_legend, make_figure, style
from auber.run import provenance
from auber.system.progress import Progress
from auber.system.records import Count, Name, Number, Record
from auber.training.devices import Hardware
from benchmarks.regret.replay import (
    BUDGETS,
    REWARDS,
    SEARCHES,
    Play,
    play_agent,
    play_random,
    play_search,
)
from benchmarks.regret.tables import LayerTable, RunTables

# The settings that a replay reads.
SETTINGS = (
    "agent.", "surrogate.", "search.matrix", "search.norm", "reward.scale", "reward.stop",
    "reward.head",
)  # fmt: skip
# The presets' agents, and the best of six settings tried on these tables (docs/experiments.md).
AGENTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{preset: (preset, {}) for preset in PRESETS},
    "best-agent": ("default", {"agent.learning_starts": 32, "agent.double_q": True}),
}
PLAYERS = (*AGENTS, *SEARCHES, "random")
_ONE_PLAY = ("greedy", "random")  # these draw nothing
_LABELS = {
    "random": "random masks, in expectation",
    "best-agent": "DQN, best of six settings",
    **{preset: f"DQN, preset {preset}" for preset in PRESETS},
}
_DIGITS = 6  # of a point


class _Measurement(Record):
    model_config = ConfigDict(extra="ignore")  # older results have more


class Quantity(_Measurement):
    """A number of a player on one layer."""

    mean: Number
    plays: tuple[Number, ...] | None = None  # None: there is one play


class Replay(Record):
    """The plays of one player on a layer: the mean curve, and each number of `Play` by name."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Quantity]

    regret: tuple[Number, ...]

    @property
    def numbers(self) -> dict[str, Quantity]:
        """Return the numbers by name."""
        return self.__pydantic_extra__


class Layer(_Measurement):
    """All plays on one layer."""

    layer: Count
    seed: int = 0  # of the run whose scores these are
    optimum: dict[str, Any] | None = None
    searches: dict[Name, Replay]


class Panel(_Measurement):
    """The replays on the layers of one model, task and protocol."""

    model: Name
    task: Name
    metric: Name
    protocol: Name
    units: Name = "heads"
    recorded: tuple[dict[str, Any], ...] = ()  # where the scores come from
    layers: Annotated[tuple[Layer, ...], Field(min_length=1)]
    # By player and number: its mean over the layers with a 95 % interval, for other layers.
    over_layers: dict[str, dict[str, Any]] = Field(default_factory=dict)

    def curve(self, player: str) -> list[float]:
        """Return the mean regret of a player over the layers."""
        curves = [layer.searches[player].regret for layer in self.layers]
        return [fmean(values) for values in zip(*curves, strict=True)]


class Regret(_Measurement):
    """How far searches stay below the best mask of a layer."""

    format: Literal[1] = 1
    kind: Literal["auber regret"] = "auber regret"
    command: str | None = None
    provenance: dict[str, Any] = Field(default_factory=dict)
    seeds: Count
    settings: dict[str, dict[str, Any]] = Field(default_factory=dict)  # of agents and searches
    rewards: tuple[Count, ...] = REWARDS
    panels: Annotated[tuple[Panel, ...], Field(min_length=1)]


def measure_regret(
    runs: Sequence[RunTables],
    players: Sequence[str],
    num_seeds: int,
    progress: Progress,
    settings: Mapping[str, Any] | None = None,
    command: str | None = None,
) -> Regret:
    """Replay the players on all tables; `settings` change every player."""
    for name in players:
        if name not in PLAYERS:
            raise ConfigError(unknown_name("player", name, PLAYERS))
    settings = settings or {}
    for key in settings:
        if not key.startswith(SETTINGS):
            remedy = "give --seeds" if key == "seed" else "leave it out"
            raise ConfigError(
                f"settings: a replay reads {', '.join(SETTINGS)}, found {key}; {remedy}"
            )
    agents = {
        name: make_config(AGENTS[name][0], settings={**AGENTS[name][1], **settings})
        for name in players
        if name in AGENTS
    }
    plain = make_config("paper", settings=settings)  # of the searches

    def play(table: LayerTable, name: str, seed: int) -> Play:
        if name == "random":
            return play_random(table)
        if name in SEARCHES:
            return play_search(table, name, plain, seed)
        return play_agent(table, name, agents[name], seed)

    def replay(table: LayerTable, name: str) -> Replay:
        is_single = name in _ONE_PLAY
        plays = [play(table, name, seed) for seed in range(1 if is_single else num_seeds)]
        curves = zip(*(each.regret for each in plays), strict=True)
        quantities: dict[str, Any] = {}
        for quantity in plays[0].numbers:
            values = tuple(_round(each.numbers[quantity]) for each in plays)
            quantities[quantity] = Quantity(
                mean=_round(fmean(values)), plays=None if is_single else values
            )
        return Replay(regret=tuple(_round(fmean(each)) for each in curves), **quantities)

    def measure(run: RunTables, table: LayerTable) -> Layer:
        progress.begin(f"{run.task}, layer {table.layer}", 0)
        searches = {name: replay(table, name) for name in players}
        progress.end()
        optimum = {"removed": list(table.best), "score": table.optimum}
        return Layer(layer=table.layer, seed=run.seed, optimum=optimum, searches=searches)

    def place_of(run: RunTables) -> tuple[str, ...]:
        return run.model, run.task, run.protocol, run.units, run.metric

    panels = []
    for _, group in itertools.groupby(
        sorted(runs, key=lambda run: (place_of(run), run.seed)), place_of
    ):
        found = list(group)
        layers = tuple(
            measure(run, table)
            for run in found
            for table in sorted(run.layers, key=lambda table: table.layer)
        )
        panels.append(
            Panel(
                **found[0].model_dump(include={"model", "task", "protocol", "units", "metric"}),
                recorded=tuple(
                    run.model_dump(include={"seed", "command", "provenance"}) for run in found
                ),
                layers=layers,
                over_layers={
                    player: {
                        name: asdict(
                            summary([layer.searches[player].numbers[name].mean for layer in layers])
                        )
                        for name in layers[0].searches[player].numbers
                    }
                    for player in players
                },
            )
        )
    return Regret(
        command=command,
        provenance=provenance.describe(Hardware(torch.device("cpu"), "float32", threads=1)),
        seeds=num_seeds,
        settings={
            name: {key: value for key, value in config.flat().items() if key.startswith(SETTINGS)}
            for name, config in {**agents, "searches": plain}.items()
        },
        panels=tuple(panels),
    )


def _round(value: float) -> float:
    return round(value, _DIGITS) + 0.0  # no negative zero


def summarise(regret: Regret) -> pd.DataFrame:
    """Return the mean regret of each player over the layers of a model, all tasks together.

    The interval is a 95 % t interval over the seeds of the player.
    """

    def place_of(panel: Panel) -> tuple[str, str, str]:
        return panel.model, panel.units, panel.protocol

    rows = []
    for place, panels in itertools.groupby(sorted(regret.panels, key=place_of), place_of):
        layers = [layer for panel in panels for layer in panel.layers]
        for name in layers[0].searches:
            row = dict(zip(("model", "units", "protocol"), place, strict=True))
            row |= {"layers": str(len(layers)), "player": _LABELS.get(name, name)}
            for budget in BUDGETS:
                found = [layer.searches[name].numbers[str(budget)] for layer in layers]
                row[f"after {budget}"] = _describe(found)
            rows.append(row)
    return pd.DataFrame(rows)


def _describe(layers: list[Quantity]) -> str:
    """Format the mean over layers, with half of its interval over seeds."""
    mean = f"{fmean(layer.mean for layer in layers):.3f}"
    if any(layer.plays is None for layer in layers):
        return mean
    by_seed = zip(*(layer.plays or () for layer in layers), strict=True)
    found = summary([fmean(plays) for plays in by_seed])
    return mean if found.high is None else f"{mean} ± {found.high - found.mean:.3f}"


def draw_regret(regret: Regret) -> Figure:
    """Draw the mean regret of each player over the rewards."""
    names = dict.fromkeys(name for panel in regret.panels for name in panel.layers[0].searches)
    colours = dict(zip(names, itertools.cycle(COLOURS), strict=False))
    with style():
        figure, every = make_figure(len(regret.panels), 2.6, 2.2, most=3, room=(0.0, 0.3))
        for axes, panel in zip(every, regret.panels, strict=True):
            title = f"{panel.task}: {panel.model}, {panel.units}, {panel.protocol}"
            axes.set_title(textwrap.fill(title, 36))
            axes.set(xlabel="rewards", ylabel=f"regret, points of {panel.metric}")
            for name in panel.layers[0].searches:
                curve, colour = panel.curve(name), colours[name]
                axes.plot(regret.rewards, curve, color=colour, label=_LABELS.get(name, name))
                at_budgets = [curve[regret.rewards.index(budget)] for budget in BUDGETS]
                axes.plot(BUDGETS, at_budgets, "o", color=colour, markersize=3)
        add_legend(figure, *every)
    return figure
