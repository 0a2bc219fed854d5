"""Results of other commands, as they write them."""

from __future__ import annotations

from typing import Any

BUDGETS = (50, 100, 200, 300)
REWARDS = (0, 10, *BUDGETS)


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
    layers = [
        {
            "layer": layer,
            "searches": {search: {"regret": means[search]["regret"]} for search in means},
        }
        for layer in (0, 2)
    ]
    recorded = [{"seed": 0, "command": "auber prune --method exhaustive", "provenance": {}}]
    names = {"model": "made-up", "task": task, "metric": "accuracy", "protocol": "seen"}
    return {
        "format": 1,
        "kind": "auber regret",
        "command": "auber regret runs/all",
        "seeds": 2,
        "rewards": list(REWARDS),
        "panels": [{**names, "recorded": recorded, "layers": layers, "mean": means}],
    }


def make_speed() -> dict[str, Any]:
    """A run that is faster row by row and slower in batches."""

    def times(milliseconds: float, batch: int) -> dict[str, float]:
        quartiles = {"low_quartile": milliseconds, "high_quartile": milliseconds}
        rate = 1000 * batch / milliseconds
        return {"milliseconds": milliseconds, **quartiles, "rows_per_second": rate}

    pairs = [
        {
            **{"runtime": "torch", "device": "cpu", "precision": "float32"},
            **{"batch": batch, "length": 128, "rounds": 6},
            "unpruned": times(40.0, batch),
            "pruned": times(40.0 / ratio, batch),
            "ratio": {"median": ratio, "low": ratio, "high": ratio},
            "verdict": "",
        }
        for batch, ratio in ((1, 2.0), (32, 0.8))
    ]
    run = {
        **{"name": "rte auber seed 0", "family": "bert", "heads_removed": 40, "heads": 144},
        "plan": {},
        "parameters": {"unpruned": 109_483_778, "pruned": 101_000_000},
        "multiply_adds": {"unpruned": 11_000_000_000, "pruned": 9_900_000_000},
        "pairs": pairs,
    }
    return {
        **{"format": 1, "kind": "speed", "command": "auber speed x", "runs": [run]},
        "left_out": ["torch on a GPU: there is none here"],
        "seconds": 1.0,
        "provenance": {"threads": 2},
    }
