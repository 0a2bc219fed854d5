"""The result of replaying tables: regrets in points for each layer and in the mean, as JSON that the figure is drawn from.

Tables of one model, task and protocol stand together; they are never mixed with others. Two things vary, and each has its
own 95 % t interval, because neither stands for the other:

- `over_seeds`: the agent's seeds, the layers as they are. Another run of the same search on the same tables.
- `over_layers`: the layers, seeds averaged. The layers measured are taken as draws from layers like them; of other tasks or
  models it says nothing. Regrets are skewed and few layers are measured, so it covers less often than it claims.

An interval is null where there is one value or all are equal. Random search has no seeds: its regrets are expectations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch

from auber.config import PRESETS, Config, make_config, require_read
from auber.errors import ConfigError, unknown_name
from auber.metrics.statistics import summary
from auber.regret.replay import BUDGETS, REWARDS, LayerReplay, Play, replay_layer
from auber.regret.tables import LayerTable, RunTables
from auber.run import provenance
from auber.system.progress import Progress
from auber.training.devices import Hardware

KIND = "auber regret"
FORMAT = 1
# Every setting that a replay reads.
SETTINGS = ("agent.*", "search.matrix", "search.norm", "reward.scale", "reward.stop", "reward.head")
_DIGITS = 6  # of a point; the tables keep all


@dataclass(frozen=True)
class _Replayed:
    """One layer's table and what was played on it."""

    seed: int  # of the run that recorded it
    table: LayerTable
    replay: LayerReplay


def measure_regret(
    tables: Sequence[RunTables],
    presets: Sequence[str],
    num_seeds: int,
    progress: Progress,
    settings: Mapping[str, Any] | None = None,
    command: str | None = None,
) -> dict[str, Any]:
    """Replay all tables with the agents of these presets, each changed by `settings` (see `SETTINGS`), and sum up what was missed.

    `command` is the command line to write into the result.
    """
    configs = {name: make_config(name, settings=settings) for name in check_presets(presets)}
    require_read(
        settings or (),
        SETTINGS,
        "a replay",
        {"seed": "give --seeds", "protocol": "set agent.episodes itself"},
    )
    if num_seeds < 1:
        raise ConfigError(f"--seeds must be at least 1, found {num_seeds}")
    groups: dict[tuple[str, str, str, str], list[RunTables]] = {}
    for run in sorted(tables, key=lambda run: (run.model, run.task, run.protocol, run.seed)):
        groups.setdefault((run.model, run.task, run.protocol, run.metric), []).append(run)
    progress.plan(sum(len(run.layers) for run in tables))
    panels = []
    for (model, task, protocol, metric), runs in groups.items():
        replayed = [
            _Replayed(
                run.seed,
                table,
                _replay(f"{task}, layer {table.layer}", table, configs, num_seeds, progress),
            )
            for run in runs
            for table in sorted(run.layers, key=lambda table: table.layer)
        ]
        names = {"model": model, "task": task, "metric": metric, "protocol": protocol}
        recorded = [
            {"seed": run.seed, "command": run.command, "provenance": run.provenance} for run in runs
        ]
        panels.append({**names, "recorded": recorded, **_panel(replayed)})
    return {
        "format": FORMAT,
        "kind": KIND,
        "command": command,
        "provenance": provenance.describe(Hardware(torch.device("cpu"), "float32", threads=1)),
        "seeds": num_seeds,
        "presets": {name: _played_settings(config) for name, config in configs.items()},
        "rewards": list(REWARDS),
        "panels": panels,
    }


def check_presets(names: Sequence[str]) -> Sequence[str]:
    """The names of different presets."""
    for name in names:
        if name not in PRESETS:
            raise ConfigError(unknown_name("preset", name, PRESETS))
    if not names or len(set(names)) < len(names):
        raise ConfigError(
            f"--presets must be different presets with commas between, found '{','.join(names)}'"
        )
    return names


def _played_settings(config: Config) -> dict[str, Any]:
    """The settings a replay reads."""
    read = tuple(name.removesuffix("*") for name in SETTINGS)
    return {key: value for key, value in config.flat().items() if key.startswith(read)}


def _replay(
    stage: str, table: LayerTable, configs: Mapping[str, Config], num_seeds: int, progress: Progress
) -> LayerReplay:
    played = 0

    def on_play() -> None:
        nonlocal played
        played += 1
        progress.step(played)

    progress.begin(stage, len(configs) * num_seeds)
    replay = replay_layer(table, configs, range(num_seeds), on_play)
    progress.end()
    return replay


def _panel(replayed: Sequence[_Replayed]) -> dict[str, Any]:
    """The layers one by one, then the searches in the mean over layers."""
    presets = list(replayed[0].replay.agents)
    means: dict[str, Any] = {}
    for name in presets:
        plays = [each.replay.agents[name] for each in replayed]  # by layer, then by seed
        means[name] = {
            "regret": _mean_curve([play.regret for layer in plays for play in layer]),
            **{
                quantity: {
                    **_summary("over_layers", [fmean(map(value, layer)) for layer in plays]),
                    **_summary(
                        "over_seeds", [fmean(map(value, seed)) for seed in zip(*plays, strict=True)]
                    ),
                }
                for quantity, value in {**_BEST_AFTER, **_AT_THE_END}.items()
            },
        }
    greedy = [each.replay.greedy for each in replayed]
    means["greedy"] = {
        "regret": _mean_curve([play.regret for play in greedy]),
        **{
            name: _summary("over_layers", [value(play) for play in greedy])
            for name, value in _BEST_AFTER.items()
        },
        "choice": _summary("over_layers", [play.choice for play in greedy]),
        "rewards": _summary("over_layers", [play.rewards for play in greedy]),
    }
    random = [each.replay.random for each in replayed]
    means["random"] = {
        "regret": _mean_curve(random),
        **{
            str(budget): _summary("over_layers", [curve[REWARDS.index(budget)] for curve in random])
            for budget in BUDGETS
        },
    }
    return {"layers": [_layer(each) for each in replayed], "mean": means}


def _layer(each: _Replayed) -> dict[str, Any]:
    table, replay = each.table, each.replay
    searches: dict[str, Any] = {}
    for name, plays in replay.agents.items():
        searches[name] = {
            "regret": _mean_curve([play.regret for play in plays]),
            **{
                quantity: {
                    **_summary("over_seeds", [value(play) for play in plays]),
                    "plays": [_rounded(value(play)) for play in plays],  # by seed, from 0
                }
                for quantity, value in {**_BEST_AFTER, **_AT_THE_END}.items()
            },
        }
    searches["greedy"] = {
        "regret": _mean_curve([replay.greedy.regret]),
        **{name: {"mean": _rounded(value(replay.greedy))} for name, value in _BEST_AFTER.items()},
        "choice": {"mean": _rounded(replay.greedy.choice)},
        "rewards": {"mean": float(replay.greedy.rewards)},
    }
    searches["random"] = {
        "regret": _mean_curve([replay.random]),
        **{
            str(budget): {"mean": _rounded(replay.random[REWARDS.index(budget)])}
            for budget in BUDGETS
        },
    }
    return {
        "layer": table.layer,
        "seed": each.seed,
        "heads": len(table.heads),
        "reward_rows": table.reward_rows,
        "unpruned_score": table.unpruned,
        "optimum": {"removed": list(table.best), "score": table.optimum},
        "searches": searches,
    }


def _best_after(budget: int) -> Callable[[Play], float]:
    place = REWARDS.index(budget)
    return lambda play: play.regret[place]


def _rollout(play: Play) -> float:
    assert play.rollout is not None, "an agent's play has a roll-out"
    return play.rollout


# What is told of a play, by its name in the result.
_BEST_AFTER: dict[str, Callable[[Play], float]] = {
    str(budget): _best_after(budget) for budget in BUDGETS
}
_AT_THE_END: dict[str, Callable[[Play], float]] = {
    "rollout": _rollout,
    "choice": lambda play: play.choice,
    "rewards": lambda play: float(play.rewards),
}


def _mean_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    return [_rounded(fmean(values)) for values in zip(*curves, strict=True)]


def _summary(interval: str, values: Sequence[float]) -> dict[str, Any]:
    """The mean, and under the interval's name how sure it is."""
    found = summary(values)
    ends = (
        None
        if found.low is None or found.high is None
        else [_rounded(found.low), _rounded(found.high)]
    )
    return {"mean": _rounded(found.mean), interval: {"n": found.n, "interval": ends}}


def _rounded(value: float) -> float:
    return round(value, _DIGITS) + 0.0  # no negative zero
