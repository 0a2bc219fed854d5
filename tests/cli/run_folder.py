"""The folder of a run at a moment, written by hand."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import psutil

from tests.report.results import make_result

NOW = 10_000.0
SEARCH = {"seconds": 1.0, "reward_seconds": 0.5, "rewards_asked": 4, "rewards_computed": 3}
RESULT = make_result(
    "rte", "auber", 7, 0.75, protocol="heldout", gap=0.125, train={"score": 0.875},
    heads={"removed": 2, "total": 12, "layers": 3, "per_layer": 4}, plan={"0": [1, 3]},
    cost={
        "rewards_asked": 40, "rewards_computed": 20, "tuning_steps": 9, "seconds": {"total": 61.0},
    },
)  # fmt: skip


class RunFolder:
    """Write the files of a run of 3 layers with 4 heads each."""

    def __init__(self, path: Path, method: str = "auber") -> None:
        self.path = path
        (path / "stages").mkdir(parents=True)
        identity = {"kind": "prune", "model": "bert-tiny", "task": "rte", "method": method}
        self.write("run.json", {**identity, "metric": "accuracy"})
        (path / "config.toml").write_text('seed = 7\nprotocol = "heldout"\n')

    def write(self, name: str, data: Any) -> None:
        (self.path / name).write_text(json.dumps(data))

    def event(self, kind: str, time: float = NOW, **values: Any) -> None:
        with (self.path / "events.jsonl").open("a") as file:
            file.write(json.dumps({"time": time, "event": kind, **values}) + "\n")

    def start(
        self, stages: tuple[str, ...] = ("first", "layer-00", "layer-01", "layer-02", "last")
    ) -> None:
        self.event("started", NOW - 100, process=os.getpid())
        self.event("planned", NOW - 100, stages=list(stages), layers=3, heads_per_layer=4)

    def finish(self, stage: str, seconds: float = 1.0, **info: Any) -> None:
        info["seconds"] = seconds
        if "search" in info:
            info["search"] = {**SEARCH, **info["search"]}
        self.write(f"stages/{stage}.json", info)
        self.event("stage", NOW - 50, stage=stage, **info)

    def progress(self, stage: str | None, done: int = 0, total: int = 0, **process: Any) -> None:
        here = {
            "id": os.getpid(),
            "started": psutil.Process().create_time(),
            "host": platform.node(),
        }
        here |= {"command": None, "folder": str(Path.cwd()), **process}
        current = {
            "name": stage,
            "began": NOW - 20,
            "done": done,
            "total": total,
            "note": "best 0.9",
        }
        self.write(
            "progress.json",
            {
                "time": NOW,
                "process": here,
                "share": 0.40625,
                "seconds_left": 94.0,
                "stage": current if stage else None,
            },
        )

    def search_layer_1(self) -> None:
        """Write a run in the middle of the search of its second layer."""
        self.start()
        self.finish("first", 12.0)
        search = {"best_score": 0.625, "best": [1, 3], "rollout": [2], "rollout_score": 0.55}
        search |= {"given_score": 0.5, "unpruned_score": 0.5}
        self.finish("layer-00", 30.0, removed=[1, 3], search=search)
        numbers = {"rewards_asked": 12, "rewards_computed": 4, "best_score": 0.875}
        values = {f"layer-01/search/{name}": value for name, value in numbers.items()}
        self.event("numbers", NOW - 10, step=3, values=values)
        self.progress("layer 1: searching", 3, 12)
