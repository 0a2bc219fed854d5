"""Runs' folders with the stages that a page shows, of made-up numbers."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tests.report.results import change, make_result, write_run

LAYERS, HEADS = 3, 4
PLAN = {0: [1, 3], 2: [0]}  # what the searches choose

# Names that would run, load or break out where they are not escaped.
HOSTILE = (
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "</script><script>document.title='owned'</script>",
    "javascript:document.title='owned'",
    "</title></style></svg><svg onload=\"document.title='owned'\">",
    "{{ 7 * 191 }}",
)


def write_searched(root: Path, name: str = "auber", **changes: Any) -> Path:
    """A run of `auber` with its searches; `changes` replace entries of its result by dotted key."""
    sizes = {
        "heads": {"removed": 3, "total": LAYERS * HEADS, "layers": LAYERS, "per_layer": HEADS},
        "plan": {str(layer): heads for layer, heads in PLAN.items()},
        "tuned_layers": [0, 2],
        "cost.seconds": {
            "first": 0.0,
            "rewards": 4.0,
            "agent": 2.0,
            "layer_tuning": 3.0,
            "last": 1.0,
            "total": 10.5,
        },
    }
    folder = write_run(root, name, _result("auber", 0.6173, {**sizes, **changes}))
    stages = folder / "stages"
    stages.mkdir()
    for layer in range(LAYERS):
        (stages / f"layer-{layer:02}.json").write_text(json.dumps(make_stage(layer)))
    return folder


def compared(score: float, share: float, milliseconds: float) -> dict[str, Any]:
    """What a run compares before and after it."""
    counts = {"parameters": round(4_000_000 * (0.4 + 0.6 * share)), "rows": 500, "tokens": 10}
    return {"score": score, "multiply_adds": share, "milliseconds": milliseconds, **counts}


def write_sized(root: Path, name: str = "sized", **changes: Any) -> Path:
    """A run of `fisher` that made two sizes: 94.8 and 91.0 points of accuracy, 95.0 unpruned."""
    sizes = []
    plans: list[dict[str, Any]] = [
        {"heads": {"0": [1]}, "neurons": {"0": "0-49", "2": "0-99"}},
        {"heads": {"0": [1, 3], "2": [0]}, "neurons": {"0": "0-97", "1": "0-19", "2": "0-99"}},
    ]
    for keep, score, time, plan, lost in (
        (0.5, 0.948, 4.0, plans[0], (1, 150)),
        (0.25, 0.91, 2.5, plans[1], (3, 218)),
    ):
        sizes.append({
            "name": f"{keep:g}",
            "keep": keep,
            "dev": {"score": score, "one_class": False, "majority": 0.5},
            "train": {"score": 0.97},
            "gap": 0.97 - score,
            "heads": {"removed": lost[0], "total": 12, "layers": LAYERS, "per_layer": HEADS},
            "neurons": {"removed": lost[1], "total": 300, "per_layer": 100},
            "remaining": {"multiply_adds": keep, "parameters": 0.4 + 0.6 * keep, "length": 128},
            "after": compared(score, keep, time),
            "plan": plan,
            "tuning": {"steps": 9, "seconds": 1.0},
        })  # fmt: skip
    chosen = {
        key: value for key, value in sizes[-1].items() if key not in ("keep", "name", "tuning")
    }
    cost = {"rewards_asked": 0, "rewards_computed": 0, "tuning_steps": 18}
    result = {
        **make_result("rte", "fisher", 0, 0.91),
        **chosen,
        "rows": {"train": 2000, "dev": 500},
        "before": compared(0.95, 1.0, 8.0),
        "sizes": sizes,
        "chosen": "0.25",
        "protocol": "crossfit",
        "cost": {**cost, "seconds": {"choosing": 1.0, "last": 2.0, "total": 3.5}},
        "provenance": {**make_result("rte", "fisher", 0, 0.9)["provenance"], "device": "cpu"},
    }
    folder = write_run(root, name, change(result, changes))
    (folder / "stages").mkdir()
    scores = {str(i): {str(j): 0.1 * (i + j) for j in range(HEADS)} for i in range(LAYERS)}
    plan = {"removed": plans[1], "importance": scores, "seconds": 1.0}
    (folder / "stages" / "plan-0.25.json").write_text(json.dumps(plan))
    return folder


def _result(method: str, dev: float, changes: dict[str, Any]) -> dict[str, Any]:
    names = {key: changes.pop(key) for key in ("task", "method") if key in changes}
    return {**make_result("rte", method, 0, dev, **changes), **names}


def make_stage(layer: int) -> dict[str, Any]:
    """What the search of a layer leaves: the choice gains one point, the best mask seen two."""
    numbers = random.Random(layer)
    removed = PLAN.get(layer, [])
    stage: dict[str, Any] = {
        "removed": removed,
        "search": {
            "seconds": 2.0,
            "reward_seconds": 1.5,
            "rewards_asked": 60,
            "rewards_computed": 12,
            "reward_rows": 100,
            "state": [numbers.random() for _ in range(HEADS)],
            "given_score": 0.70,
            "unpruned_score": 0.70,
            "rollout": removed,
            "rollout_score": 0.71 if removed else 0.70,
            "best": [2],
            "best_score": 0.72,
            "q_values": [numbers.uniform(-1, 1) for _ in range(HEADS + 1)],
            "curve": [[1, 0.70], [4, 0.71], [9, 0.72]],
        },
        "seconds": 3.5,
        "weights": True,
    }
    if removed:
        stage["tuning"] = {"steps": 9, "seconds": 1.25}
    return stage


def write_ranked(root: Path, name: str = "michel", **changes: Any) -> Path:
    """A run of a ranking method on the same model and rows."""
    sizes = {
        "heads": {"removed": 3, "total": LAYERS * HEADS, "layers": LAYERS, "per_layer": HEADS},
        "plan": {"1": [0, 1, 2]},
        "cost.seconds": {"layer_tuning": 2.0, "total": 5.0},
    }
    folder = write_run(root, name, _result("michel", 0.6400, {**sizes, **changes}))
    (folder / "stages").mkdir()
    scores = {
        str(layer): {str(head): 0.1 * (layer + head) for head in range(HEADS)}
        for layer in range(LAYERS)
    }
    (folder / "stages" / "plan.json").write_text(
        json.dumps({"removed": {"1": [0, 1, 2]}, "importance": scores, "seconds": 1.0})
    )
    (folder / "stages" / "layer-00.json").write_text(
        json.dumps({"tuning": {"steps": 9, "seconds": 1.0}, "seconds": 1.0})
    )
    return folder
