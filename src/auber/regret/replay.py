"""Searches played on a layer's score table: looking a score up takes the place of computing it.

The agent plays once for each seed, as `auber` plays a layer but always on a CPU; greedy search has no chance in it and plays
once; for random search no draw is made, its regret is the exact expectation. Rewards are counted as different masks, the
unpruned layer included. A search that ended sooner counts with what it had.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from auber.config import Config
from auber.errors import RunError
from auber.regret.measure import best_after, expected_regret
from auber.regret.tables import LayerTable
from auber.search.game import PruningGame
from auber.search.methods import LayerSearch
from auber.search.players import greedy
from auber.search.players.dqn import play_layer
from auber.system.progress import Progress

if TYPE_CHECKING:
    from auber.models.encoders.base import Encoder

BUDGETS = (50, 100, 200, 300)  # different rewards after which searches are compared
REWARDS = (1, *range(10, 301, 10))  # where a curve is drawn; every budget is among them

_POINTS = 100.0


@dataclass(frozen=True)
class Play:
    """What one play of a search missed, in points."""

    regret: tuple[float, ...]  # of the best mask scored, at each of `REWARDS`
    choice: float  # of the plan the search ends with
    rewards: int  # different masks scored in all
    rollout: float | None = None  # of the agent's greedy roll-out, whichever plan it ends with


@dataclass(frozen=True)
class LayerReplay:
    """All searches on one table."""

    agents: Mapping[str, tuple[Play, ...]]  # by preset; one play for each seed
    greedy: Play
    random: tuple[float, ...]  # the expected regret at each of `REWARDS`, in points


def replay_layer(
    table: LayerTable,
    presets: Mapping[str, Config],
    seeds: Sequence[int],
    on_play: Callable[[], None] | None = None,
) -> LayerReplay:
    """Play every preset's agent with every seed, then greedy search; `on_play` hears of each agent's play."""
    agents: dict[str, tuple[Play, ...]] = {}
    for name, config in presets.items():
        plays = []
        for seed in seeds:
            plays.append(_play_agent(table, name, config, seed))
            if on_play is not None:
                on_play()
        agents[name] = tuple(plays)
    random = tuple(_POINTS * expected_regret(table.scores, rewards) for rewards in REWARDS)
    return LayerReplay(agents, _play_greedy(table, next(iter(presets.values()))), random)


def _play_agent(table: LayerTable, preset: str, config: Config, seed: int) -> Play:
    matrix, norm = config.search.matrix, config.search.norm
    state = table.states.get(matrix, {}).get(norm)
    if state is None:
        held = (
            ", ".join(
                f"{name} {each}" for name, by_norm in table.states.items() for each in by_norm
            )
            or "none"
        )
        raise RunError(
            f"layer {table.layer}: preset {preset} plays on the state '{matrix} {norm}', which must be in the table, "
            f"found {held}; record the layer anew"
        )
    game = PruningGame(
        np.array(state, dtype=np.float32),
        table.known.__getitem__,
        scale=config.reward.scale,
        stop_reward=config.reward.stop,
        unit_reward=config.reward.head,
    )
    outcome = play_layer(game, config.agent, seed=seed, layer=table.layer)
    return Play(
        regret=_regrets(table, outcome.curve),
        choice=_POINTS * (table.optimum - table.known[outcome.removed]),
        rewards=outcome.rewards_computed,
        rollout=_POINTS * (table.optimum - outcome.rollout_score),
    )


def _play_greedy(table: LayerTable, config: Config) -> Play:
    def look_up(masks: Sequence[tuple[int, ...]]) -> list[float]:
        return [table.known[mask] for mask in masks]

    no_encoder = cast("Encoder", None)  # greedy search looks at scores alone
    search = LayerSearch(
        table.layer, no_encoder, tuple(range(len(table.heads))), look_up, config, Progress()
    )
    choice = greedy.choose_layer(search)
    return Play(
        regret=_regrets(table, choice.details["curve"]),
        choice=_POINTS * (table.optimum - table.known[choice.removed]),
        rewards=choice.rewards_computed,
    )


def _regrets(table: LayerTable, curve: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(_POINTS * (table.optimum - best_after(curve, rewards)) for rewards in REWARDS)
