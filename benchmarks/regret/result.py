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

from auber.config import PRESETS, Config, make_config, require_read
from auber.errors import ConfigError, unknown_name
from auber.metrics.statistics import summary
from auber.run import provenance
from auber.system.progress import Progress
from auber.training.devices import Hardware
from benchmarks.regret.replay import REWARDS, Play, play_agent, play_greedy, play_random
from benchmarks.regret.tables import LayerTable, RunTables

# The settings that a replay reads.
SETTINGS = ("agent.*", "search.matrix", "search.norm", "reward.scale", "reward.stop", "reward.head")
_OTHERS = ("greedy", "random")
_DIGITS = 6  # of a point

Plays = dict[str, list[Play]]  # by player; an agent has one play per seed


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
        if name not in (*PRESETS, *_OTHERS):
            raise ConfigError(unknown_name("player", name, (*PRESETS, *_OTHERS)))
    settings = settings or {}
    require_read(settings, SETTINGS, "a replay", {"seed": "give --seeds"})
    names = dict.fromkeys(name for name in players if name in PRESETS)
    configs = {name: make_config(name, settings=settings) for name in names}

    def place_of(run: RunTables) -> tuple[str, ...]:
        return run.model, run.task, run.protocol, run.metric

    panels = []
    for place, group in groupby(sorted(runs, key=lambda run: (place_of(run), run.seed)), place_of):
        found = list(group)
        layers, played = [], []
        for run in found:
            for table in sorted(run.layers, key=lambda table: table.layer):
                progress.begin(f"{run.task}, layer {table.layer}", 0)
                plays = _play_all(table, players, configs, num_seeds)
                progress.end()
                played.append(plays)
                layers.append(_describe_layer(run.seed, table, plays, configs))
        panels.append(
            {
                **dict(zip(("model", "task", "protocol", "metric"), place, strict=True)),
                "recorded": [
                    run.model_dump(mode="json", include={"seed", "command", "provenance"})
                    for run in found
                ],
                "layers": layers,
                "mean": _describe_mean(played, configs),
            }
        )
    return {
        "format": 1,
        "kind": "auber regret",
        "command": command,
        "provenance": provenance.describe(Hardware(torch.device("cpu"), "float32", threads=1)),
        "seeds": num_seeds,
        "presets": {name: _settings_read(config) for name, config in configs.items()},
        "rewards": list(REWARDS),
        "panels": panels,
    }


def _play_all(
    table: LayerTable, players: Sequence[str], configs: Mapping[str, Config], num_seeds: int
) -> Plays:
    found: Plays = {}
    for name in players:
        if name == "random":
            found[name] = [play_random(table)]
        elif name == "greedy":
            found[name] = [play_greedy(table, next(iter(configs.values()), make_config("paper")))]
        else:
            seeds = range(num_seeds)
            found[name] = [play_agent(table, name, configs[name], seed) for seed in seeds]
    return found


def _describe_layer(
    seed: int, table: LayerTable, plays: Plays, agents: Mapping[str, Config]
) -> dict[str, Any]:
    searches = {}
    for name, found in plays.items():
        described: dict[str, Any] = {"regret": _mean_curve(found)}
        for quantity in found[0].numbers:
            values = [play.numbers[quantity] for play in found]
            described[quantity] = {"mean": _round(fmean(values))}
            if name in agents:
                described[quantity] |= {
                    "over_seeds": _interval(values),
                    "plays": [_round(value) for value in values],
                }
        searches[name] = described
    return {
        "layer": table.layer,
        "seed": seed,
        "heads": len(table.heads),
        "reward_rows": table.reward_rows,
        "unpruned_score": table.scores[0],
        "optimum": {"removed": list(table.best), "score": table.optimum},
        "searches": searches,
    }


def _describe_mean(layers: Sequence[Plays], agents: Mapping[str, Config]) -> dict[str, Any]:
    means: dict[str, Any] = {}
    for name in layers[0]:
        plays = [layer[name] for layer in layers]
        means[name] = {"regret": _mean_curve([play for layer in plays for play in layer])}
        for quantity in plays[0][0].numbers:
            values = [[play.numbers[quantity] for play in layer] for layer in plays]
            by_layer = [fmean(layer) for layer in values]
            described = {"mean": _round(fmean(by_layer)), "over_layers": _interval(by_layer)}
            if name in agents:
                by_seed = [fmean(seed) for seed in zip(*values, strict=True)]
                described["over_seeds"] = _interval(by_seed)
            means[name][quantity] = described
    return means


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
