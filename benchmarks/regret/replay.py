"""Searches replayed on a layer's score table: a score is looked up instead of computed.

Agents, surrogate search and evolution play once per seed, on a CPU; greedy search is deterministic
and plays once; of random search the exact expectation is computed. A reward counts once for each
different mask, the unpruned layer included. A search that ended sooner counts with what it had.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from auber.config import Config
from auber.errors import RunError
from auber.search.game import PruningGame
from auber.search.methods import LayerChoice, LayerSearch, ScoredMasks
from auber.search.players import greedy, surrogate
from auber.search.players.dqn import play_layer
from auber.system import seeds
from auber.system.progress import Progress
from benchmarks.regret.tables import LayerTable

if TYPE_CHECKING:
    from auber.models.encoders.base import Encoder

BUDGETS = (50, 100, 200, 300)  # rewards after which searches are compared
REWARDS = (1, *range(10, 301, 10))  # where a curve is drawn; every budget is among them

_PARENTS = 10
_PATIENCE = 1000  # children in a row that are known already
_POINTS = 100.0


def evolve(search: LayerSearch) -> LayerChoice:
    """Score as many children of the best masks as the surrogate scores, and return the best mask.

    Each child takes every unit from one of two parents, drawn from the best masks known, and then
    changes a unit with probability 1 / n.
    """
    draw = seeds.generator(search.config.seed, "evolution", search.layer)
    heads, scored = np.array(search.heads), ScoredMasks(search)
    scored.add([()])
    rewards = min(search.config.surrogate.rewards, 2 ** len(heads) - 1)
    repeats = 0
    while len(scored) < rewards and repeats < _PATIENCE:
        parents = sorted(scored.scores, key=lambda mask: -scored.objective(mask))[:_PARENTS]
        if len(parents) < _PARENTS:
            removed = draw.random(len(heads)) < 0.5
        else:
            pair = draw.choice(_PARENTS, 2, replace=False)
            one, other = (np.isin(heads, parents[place]) for place in pair)
            removed = np.where(draw.random(len(heads)) < 0.5, one, other)
            removed ^= draw.random(len(heads)) < 1 / len(heads)
        mask = tuple(heads[removed].tolist())
        repeats = 0 if mask not in scored.scores and not removed.all() else repeats + 1
        if repeats == 0:
            scored.add([mask])
    return scored.choose(scored.best(), curve=scored.curve())


# Searches that need no state; greedy search draws nothing and plays once.
SEARCHES: dict[str, Callable[[LayerSearch], LayerChoice]] = {
    "surrogate": surrogate.choose_layer,
    "evolution": evolve,
    "greedy": greedy.choose_layer,
}


@dataclass(frozen=True)
class Play:
    """One play of a search: `regret` at each of `REWARDS`, and its numbers by name, in points.

    The numbers are the regret after each budget, of the plan (`choice`) and of the agent's greedy
    roll-out (`rollout`), and the number of rewards; a search has not all of them.
    """

    regret: tuple[float, ...]
    numbers: dict[str, float]


def play_agent(table: LayerTable, preset: str, config: Config, seed: int) -> Play:
    """Play the agent of a preset."""
    norm = config.search.norm
    matrix = "contract" if "contract" in table.states else config.search.matrix  # of neurons
    state = table.states.get(matrix, {}).get(norm)
    if state is None:
        raise RunError(
            f"layer {table.layer}: preset {preset} plays on the state '{matrix} {norm}', which "
            f"must be in the table, found {sorted(table.states) or 'none'}; record the layer again"
        )
    game = PruningGame(
        np.array(state, dtype=np.float32),
        table.known.__getitem__,
        scale=config.reward.scale,
        stop_reward=config.reward.stop,
        unit_reward=config.reward.head,
    )
    outcome = play_layer(game, config.agent, seed=seed, layer=table.layer)
    return _play(
        _regrets(table, outcome.curve),
        rollout=_POINTS * (table.optimum - outcome.rollout_score),
        choice=_POINTS * (table.optimum - table.known[outcome.removed]),
        rewards=float(outcome.rewards_computed),
    )


def play_search(table: LayerTable, name: str, config: Config, seed: int) -> Play:
    """Play a layer search that looks at scores alone."""
    no_encoder = cast("Encoder", None)
    heads = tuple(range(len(table.heads)))

    def look_up(masks: Sequence[tuple[int, ...]]) -> list[float]:
        return [table.known[mask] for mask in masks]

    config = config.replace({"seed": seed, "surrogate.rewards": REWARDS[-1]})
    layer = LayerSearch(table.layer, no_encoder, heads, look_up, config, Progress())
    choice = SEARCHES[name](layer)
    return _play(
        _regrets(table, choice.details["curve"]),
        choice=_POINTS * (table.optimum - table.known[choice.removed]),
        rewards=float(choice.rewards_asked),
    )


def play_random(table: LayerTable) -> Play:
    """Return the expectation of random search."""
    return _play(tuple(_POINTS * expected_regret(table.scores, number) for number in REWARDS))


def expected_regret(scores: Sequence[float], rewards: int) -> float:
    """Return the mean distance of the best of all scores from the best of `rewards` of them.

    The first score is always among them, the others are drawn without repeats.
    """
    optimum = max(scores)
    missed = sorted((optimum - max(score, scores[0]) for score in scores[1:]), reverse=True)
    drawn = min(rewards - 1, len(missed))
    if drawn == 0:
        return optimum - scores[0]
    # The best drawn has this rank in C(rank, drawn - 1) of C(all, drawn) cases; both are huge.
    cases = _log_choose(len(missed), drawn)
    return math.fsum(
        missed[rank] * math.exp(_log_choose(rank, drawn - 1) - cases)
        for rank in range(drawn - 1, len(missed))
    )


def _log_choose(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)


def _play(regret: tuple[float, ...], **others: float) -> Play:
    after = {str(budget): regret[REWARDS.index(budget)] for budget in BUDGETS}
    return Play(regret, after | others)


def _regrets(table: LayerTable, curve: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return the regret of the best mask so far, from (rewards, best score) at each improvement."""
    found = []
    for rewards in REWARDS:
        best = max(score for scored, score in curve if scored <= rewards)
        found.append(_POINTS * (table.optimum - best))
    return tuple(found)
