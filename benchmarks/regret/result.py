"""The result of replaying tables: regrets in points for each layer and in the mean over the layers.

Tables of one model, task and protocol form a panel. Two things vary, each with its own 95 % t
interval: `over_seeds`, other seeds of the agent on the same layers, and `over_layers`, other layers
like these, seeds averaged. An interval is null if there is one value or all are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import fmean
from typing import Any

import torch

from auber.config import PRESETS, Config, make_config
from auber.errors import ConfigError, unknown_name
from auber.metrics.statistics import summary
from auber.run import provenance
from auber.system.progress import Progress
from auber.training.devices import Hardware
from benchmarks.regret.replay import (
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
    "agent.*",
    "surrogate.*",
    "search.matrix",
    "search.norm",
    "reward.scale",
    "reward.stop",
    "reward.head",
)
# The presets' agents, and the best of six settings tried on these tables (docs/experiments.md).
AGENTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{preset: (preset, {}) for preset in PRESETS},
    "best-agent": ("default", {"agent.learning_starts": 32, "agent.double_q": True}),
}
PLAYERS = (*AGENTS, *SEARCHES, "random")
_ONE_PLAY = ("greedy", "random")  # these draw nothing
_DIGITS = 6  # of a point

Plays = dict[str, list[Play]]  # by player; one per seed, or a single one


def measure_regret(
    runs: Sequence[RunTables],
    players: Sequence[str],
    num_seeds: int,
    progress: Progress,
    settings: Mapping[str, Any] | None = None,
    command: str | None = None,
) -> dict[str, Any]:
    """Replay the players on all tables; `settings` change every agent."""
    for name in players:
        if name not in PLAYERS:
            raise ConfigError(unknown_name("player", name, PLAYERS))
    settings = settings or {}
    for key in settings:
        if key not in SETTINGS and not key.startswith(("agent.", "surrogate.")):
            remedy = "give --seeds" if key == "seed" else "leave it out"
            raise ConfigError(
                f"settings: a replay reads {', '.join(SETTINGS)}, found {key}; {remedy}"
            )
    configs = {
        name: make_config(AGENTS[name][0], settings={**AGENTS[name][1], **settings})
        for name in dict.fromkeys(players)
        if name in AGENTS
    }
    plain = make_config("paper", settings=settings)  # of the searches

    def place_of(run: RunTables) -> tuple[str, ...]:
        return run.model, run.task, run.protocol, run.units, run.metric

    panels = []
    for place, group in groupby(sorted(runs, key=lambda run: (place_of(run), run.seed)), place_of):
        found = list(group)
        layers, played = [], []
        for run in found:
            for table in sorted(run.layers, key=lambda table: table.layer):
                progress.begin(f"{run.task}, layer {table.layer}", 0)
                plays = _play_all(table, players, configs, plain, num_seeds)
                progress.end()
                played.append(plays)
                layers.append(_describe_layer(run.seed, table, plays))
        panels.append(
            {
                **dict(zip(("model", "task", "protocol", "units", "metric"), place, strict=True)),
                "recorded": [
                    run.model_dump(mode="json", include={"seed", "command", "provenance"})
                    for run in found
                ],
                "layers": layers,
                "mean": {
                    name: _describe([plays[name] for plays in played], name, is_mean=True)
                    for name in played[0]
                },
            }
        )
    return {
        "format": 1,
        "kind": "auber regret",
        "command": command,
        "provenance": provenance.describe(Hardware(torch.device("cpu"), "float32", threads=1)),
        "seeds": num_seeds,
        "presets": {name: _settings_read(config) for name, config in configs.items()},
        "searches": _settings_read(plain),
        "rewards": list(REWARDS),
        "panels": panels,
    }


def _play_all(
    table: LayerTable,
    players: Sequence[str],
    configs: Mapping[str, Config],
    plain: Config,
    num_seeds: int,
) -> Plays:
    found: Plays = {}
    for name in players:
        seeds = range(1 if name in _ONE_PLAY else num_seeds)
        if name == "random":
            found[name] = [play_random(table)]
        elif name in SEARCHES:
            found[name] = [play_search(table, name, plain, seed) for seed in seeds]
        else:
            found[name] = [play_agent(table, name, configs[name], seed) for seed in seeds]
    return found


def _describe_layer(seed: int, table: LayerTable, plays: Plays) -> dict[str, Any]:
    return {
        "layer": table.layer,
        "seed": seed,
        "heads": len(table.heads),
        "reward_rows": table.reward_rows,
        "unpruned_score": table.scores[0],
        "optimum": {"removed": list(table.best), "score": table.optimum},
        "searches": {
            name: _describe([found], name, is_mean=False) for name, found in plays.items()
        },
    }


def _describe(layers: Sequence[Sequence[Play]], name: str, *, is_mean: bool) -> dict[str, Any]:
    """Return the numbers of a search on one layer, or their means over the layers."""
    described: dict[str, Any] = {"regret": _mean_curve([play for each in layers for play in each])}
    for quantity in layers[0][0].numbers:
        values = [[play.numbers[quantity] for play in layer] for layer in layers]
        by_layer = [fmean(layer) for layer in values]
        found: dict[str, Any] = {"mean": _round(fmean(by_layer))}
        if is_mean:
            found["over_layers"] = _interval(by_layer)
        if name not in _ONE_PLAY:
            found["over_seeds"] = _interval([fmean(each) for each in zip(*values, strict=True)])
        if name not in _ONE_PLAY and not is_mean:
            found["plays"] = [_round(value) for value in values[0]]
        described[quantity] = found
    return described


def _mean_curve(plays: Sequence[Play]) -> list[float]:
    curves = [play.regret for play in plays]
    return [_round(fmean(values)) for values in zip(*curves, strict=True)]


def _interval(values: Sequence[float]) -> dict[str, Any]:
    found = summary(values)
    if found.low is None or found.high is None:
        return {"n": found.n, "interval": None}
    return {"n": found.n, "interval": [_round(found.low), _round(found.high)]}


def _settings_read(config: Config) -> dict[str, Any]:
    read = tuple(name.removesuffix("*") for name in SETTINGS)
    return {key: value for key, value in config.flat().items() if key.startswith(read)}


def _round(value: float) -> float:
    return round(value, _DIGITS) + 0.0  # no negative zero
