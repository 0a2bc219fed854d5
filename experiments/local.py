"""Does a hill climb after the agent's games pay? Replayed on the recorded scores of whole layers.

The agent of the `default` preset plays some games; then, from the best masks it has seen, one head at a time is taken out or put
back as long as that gains. Both have the same number of rewards at most. Regret is the distance to the layer's best mask.

python -m experiments.local results/regret/tables.json --out results/experiments/local.json
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from auber import provenance
from auber.config import make_config
from auber.devices import resolve_hardware
from auber.regret.tables import LayerTable, read_tables
from auber.search.agent import play_layer
from auber.search.game import PruningGame
from experiments.command import write
from experiments.masked import Mask

STARTS = 3  # masks that are climbed from


def climb(known: Mapping[Mask, float], seen: Mapping[Mask, float], num_heads: int, budget: int) -> dict[Mask, float]:
    """What is seen after climbing from the best masks of `seen`, with no more than `budget` different masks in all."""
    scores = dict(seen)
    for mask in sorted(scores, key=lambda mask: (-scores[mask], len(mask)))[:STARTS]:
        while True:
            near = [tuple(sorted({*mask} ^ {head})) for head in range(num_heads)]
            near = [other for other in near if len(other) < num_heads]  # a head stays
            new = [other for other in near if other not in scores]
            for other in new[: max(0, budget - len(scores))]:
                scores[other] = known[other]
            best = max((other for other in near if other in scores), key=scores.__getitem__, default=mask)
            if scores[best] <= scores[mask]:
                break
            mask = best
    return scores


def play(table: LayerTable, episodes: int, seed: int) -> dict[Mask, float]:
    """The scores that the agent asks for, in its order."""
    config = make_config("default", settings={"agent.episodes": episodes})
    state = np.array(table.states[config.search.matrix][config.search.norm], dtype=np.float32)
    game = PruningGame(
        state, table.known.__getitem__, scale=config.reward.scale, stop_reward=config.reward.stop
    )  # fmt: skip
    play_layer(game, config.agent, seed=seed, layer=table.layer)
    return dict(game.scores)


def compare(table: LayerTable, episodes: int, seed: int, budget: int) -> dict[str, tuple[float, int]]:
    """Regret in points and rewards of the agent alone and of the agent with the climb, both within the budget."""
    seen = dict(list(play(table, episodes, seed).items())[:budget])
    climbed = climb(table.known, seen, len(table.heads), budget)
    return {
        name: (100 * (table.optimum - max(scores.values())), len(scores))
        for name, scores in (("agent", seen), ("climb", climbed))
    }


def main() -> None:
    """The command line."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("tables", type=Path, help="what 'auber regret --tables' has written")
    options.add_argument("--episodes", default="20,40,60,150")
    options.add_argument("--seeds", type=int, default=10, help="plays of each layer")
    options.add_argument("--budget", type=int, default=600, help="rewards at most")
    options.add_argument("--out", type=Path, required=True, help="a .json file")
    arguments = options.parse_args()
    torch.set_num_threads(1)
    started, rows = time.perf_counter(), []
    for run in read_tables([arguments.tables]):
        for episodes in map(int, arguments.episodes.split(",")):
            found = [
                compare(table, episodes, seed, arguments.budget)
                for table in run.layers
                for seed in range(arguments.seeds)
            ]
            row: dict[str, Any] = {"model": run.model, "task": run.task, "episodes": episodes}
            for name in ("agent", "climb"):
                row[name] = {
                    "regret": round(fmean(each[name][0] for each in found), 4),
                    "rewards": round(fmean(each[name][1] for each in found), 1),
                }
            rows.append(row)
    result = {
        "format": 1,
        "kind": "experiment-local",
        "command": f"python -m experiments.local {arguments.tables.name} --episodes {arguments.episodes} "
        f"--seeds {arguments.seeds} --budget {arguments.budget}",
        "rows": rows,
        "seconds": round(time.perf_counter() - started, 1),
        "provenance": provenance.describe(resolve_hardware(make_config(settings={"device": "cpu", "threads": 1}))),
    }
    write(arguments.out, result)


if __name__ == "__main__":
    main()
