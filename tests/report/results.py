"""Runs' folders as `auber prune` leaves them, with the scores a test wants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from auber.report.results_file import read_place
from auber.report.runs import RunSet, pool_runs
from auber.study.plan import make_study

SIZES = {"mrpc": (3668, 408), "rte": (2490, 277), "wnli": (635, 71), "agreement": (600, 400)}
MAJORITY = {"mrpc": 0.6838, "rte": 0.5271, "wnli": 0.5634, "agreement": 0.5}


def collect(*places: Path) -> RunSet:
    return pool_runs([read_place(place) for place in places])


def make_result(task: str, method: str, seed: int, dev: float, **changes: Any) -> dict[str, Any]:
    """A result; `changes` replace entries by dotted key."""
    train_rows, dev_rows = SIZES[task]
    removed = 0 if method.startswith("original") else 20
    result: dict[str, Any] = {
        "format": 1,
        "kind": "prune",
        "command": f"auber study studies/table2.toml --model weights/mpnet --data ../glue "
        f"--out runs/t2 --only seed={seed}",
        "model": "mpnet-base",
        "method": method,
        "task": task,
        "labels": 2,
        "rows": {"train": train_rows, "dev": dev_rows},
        "metric": "accuracy",
        "protocol": "seen",
        "seed": seed,
        "dev": {"score": dev, "one_class": False, "majority": MAJORITY[task]},
        "train": {"score": 0.95},
        "gap": 0.95 - dev,
        "heads": {"removed": removed, "total": 144, "layers": 12, "per_layer": 12},
        "plan": {"0": list(range(10)), "5": list(range(10))} if removed else {},
        "tuned_layers": [] if method == "original" else [0, 3],
        "cost": {
            "rewards_asked": 3000 if method.startswith("auber") else 0,
            "rewards_computed": 1500 if method.startswith("auber") else 0,
            "tuning_steps": 100 + seed,
            "seconds": {"agent": 2.5, "total": 12.5},
        },
        "config": {"seed": seed, "agent.episodes": 150, "last.epochs": 6, "random.draw": 0},
        "data": f"hash of {task}",
        "start": f"weights of {task}, {seed}",
        "provenance": {
            "versions": {"python": "3.12.1", "auber": "0.1.0", "torch": "2.11.0"},
            "commit": {"id": "0123456789abcdef", "dirty": False},
            "device": "NVIDIA H200",
            "precision": "bfloat16",
            "threads": 1,
        },
    }
    return change(result, changes)


def change(result: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Replace entries of a result by dotted key."""
    for key, value in changes.items():
        *path, last = key.split(".")
        place = result
        for name in path:
            place = place[name]
        place[last] = value
    return result


def write_plan(
    root: Path,
    tasks: list[str] | dict[str, Any],
    methods: list[str],
    seeds: list[int],
    **changes: Any,
) -> None:
    """The record of a study that asks for these runs."""
    tables = {
        "model": "mpnet-base",
        "tasks": tasks,
        "methods": methods,
        "seeds": seeds,
        "preset": "paper",
    }
    root.mkdir(parents=True, exist_ok=True)
    (root / "study.toml").write_text(make_study({**tables, **changes}).to_toml())


def write_run(root: Path, name: str, result: dict[str, Any] | None) -> Path:
    """A run's folder; without a result it is unfinished."""
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    if result is not None:
        (folder / "result.json").write_text(json.dumps(result))
    return folder


def write_study(root: Path, scores: dict[str, dict[str, list[float]]], **changes: Any) -> None:
    """Runs for {task: {method: [dev score of seed 0, 1, ...]}}, in points."""
    for task, methods in scores.items():
        for method, of_method in methods.items():
            for seed, score in enumerate(of_method):
                result = make_result(task, method, seed, score / 100, **changes)
                write_run(
                    root,
                    f"{result['model']}/{task}/{result['protocol']}/seed-{seed}/{method}",
                    result,
                )
