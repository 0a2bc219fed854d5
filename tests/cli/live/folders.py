"""A run's folder as it stands at a moment, written by hand so that every moment can be had at once."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import psutil

NOW = 10_000.0


class RunFolder:
    """Writes what a run of 3 layers with 4 heads each writes."""

    def __init__(self, path: Path, method: str = "auber") -> None:
        self.path = path
        (path / "stages").mkdir(parents=True)
        self.write(
            "run.json",
            {
                "kind": "prune",
                "model": "bert-tiny",
                "task": "rte",
                "method": method,
                "metric": "accuracy",
            },
        )
        (path / "config.toml").write_text('seed = 7\nprotocol = "heldout"\n')

    def write(self, name: str, data: Any) -> None:
        (self.path / name).write_text(json.dumps(data))

    def event(self, kind: str, time: float = NOW, **numbers: Any) -> None:
        with (self.path / "events.jsonl").open("a") as file:
            file.write(json.dumps({"time": time, "event": kind, **numbers}) + "\n")

    def start(
        self, stages: tuple[str, ...] = ("first", "layer-00", "layer-01", "layer-02", "last")
    ) -> None:
        self.event("started", NOW - 100, process=os.getpid())
        self.event("planned", NOW - 100, stages=list(stages), layers=3, heads_per_layer=4)

    def finish(self, stage: str, **info: Any) -> None:
        self.write(f"stages/{stage}.json", info)
        self.event("stage", NOW - 50, stage=stage, **info)

    def progress(self, stage: str | None, done: int = 0, total: int = 0, **process: Any) -> None:
        here = {
            "id": os.getpid(),
            "started": psutil.Process().create_time(),
            "host": platform.node(),
        }
        here |= {"command": None, "folder": str(Path.cwd())}
        place = {"name": stage, "began": NOW - 20, "done": done, "total": total, "note": "best 0.9"}
        self.write(
            "progress.json",
            {
                "time": NOW,
                "process": {**here, **process},
                "share": 0.40625,
                "stage": None if stage is None else place,
            },
        )

    def score(self, layer: int, removed: list[int], score: float, key: str = "k") -> None:
        with (self.path / "scores.jsonl").open("a") as file:
            file.write(
                json.dumps({"key": key, "layer": layer, "removed": removed, "score": score}) + "\n"
            )

    def search_layer_1(self) -> None:
        """A search in the middle of its second layer."""
        self.start()
        self.finish("first", seconds=12.0)
        search = {"best_score": 0.625, "best": [1, 3], "rollout": [2], "rollout_score": 0.55}
        search |= {"given_score": 0.5, "unpruned_score": 0.5}
        self.finish("layer-00", removed=[1, 3], search=search, seconds=30.0)
        self.write("plan.json", {"0": [1, 3]})
        for removed, score in (([], 0.75), ([0], 0.5), ([1], 0.875)):
            self.score(1, removed, score)
        for episode, value in enumerate((1.0, -2.0, 3.0), 1):
            numbers = {
                "return": value,
                "rewards_asked": 4 * episode,
                "rewards_computed": episode + 1,
            }
            self.event(
                "numbers",
                NOW - 10,
                step=episode,
                values={f"layer-01/search/{name}": n for name, n in numbers.items()},
            )
        self.progress("layer 1: searching", 3, 12)


RESULT = {
    "dev": {"score": 0.75},
    "train": {"score": 0.875},
    "gap": 0.125,
    "plan": {"0": [1, 3]},
    "heads": {"removed": 2, "total": 12},
    "cost": {"rewards_asked": 40, "rewards_computed": 20, "seconds": {"total": 61.0}},
}
