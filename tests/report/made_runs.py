"""Runs' folders with the stages that a page shows, of made-up numbers."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tests.report.results import make_result, write_run

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
