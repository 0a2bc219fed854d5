"""Made results of other commands, as they write them."""

from __future__ import annotations

import copy
from typing import Any

from auber.export.speed import Amount, RunSpeed, Speed, SpeedProvenance, Timing

BUDGETS = (50, 100, 200, 300)
REWARDS = (1, *range(10, 301, 10))


def make_regret(task: str = "toys") -> dict[str, Any]:
    """A result of two layers, where an agent misses half a point and random search more."""
    amounts = {"paper": 0.5, "greedy": 0.6, "random": 0.8}
    means = {
        search: {
            "regret": [amount] * len(REWARDS),
            **{
                str(budget): {
                    "mean": amount,
                    "over_layers": {"n": 2, "interval": [-1.4, 2.4] if search == "paper" else None},
                }
                for budget in BUDGETS
            },
        }
        for search, amount in amounts.items()
    }
    layers = [{"layer": layer, "searches": copy.deepcopy(means)} for layer in (0, 2)]
    recorded = [{"seed": 0, "command": "auber prune --method exhaustive", "provenance": {}}]
    names = {"model": "made-up", "task": task, "metric": "accuracy", "protocol": "seen"}
    return {
        "format": 1,
        "kind": "auber regret",
        "command": "python -m benchmarks.regret runs/all",
        "seeds": 2,
        "rewards": list(REWARDS),
        "panels": [{**names, "recorded": recorded, "layers": layers, "mean": means}],
    }


def make_speed() -> Speed:
    """A run that is faster one by one and slower in batches."""
    names = ("unpruned", "pruned")
    timings = tuple(
        Timing.of(("torch", "cpu", "float32"), batch, 128, names, ([0.04] * 6, [pruned] * 6))
        for batch, pruned in ((1, 0.02), (32, 0.05))
    )
    run = RunSpeed(
        name="rte auber seed 0",
        family="bert",
        heads_removed=40,
        heads=144,
        neurons_removed=3000,
        neurons=36_864,
        plan={},
        parameters=Amount(unpruned=109_483_778, pruned=101_000_000),
        multiply_adds=Amount(unpruned=11_000_000_000, pruned=9_900_000_000),
        int8_bytes=Amount(unpruned=110_000_000, pruned=101_500_000),
        timings=timings,
    )
    return Speed(
        command="auber speed x",
        runs=(run,),
        left_out=("torch on a GPU: there is none here",),
        seconds=1.0,
        provenance=SpeedProvenance(versions={}, commit=None, threads=2),
    )
