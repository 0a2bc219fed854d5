"""The job the drills break: a tiny encoder pruned on rows from files, exported and reported, and what must come out of it."""

from __future__ import annotations

import csv
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.small import small_config, small_task
from tests.study.tiny import tiny_model_folder

# Of a result, what does not depend on how long anything took.
SAME = (
    "kind",
    "dev",
    "train",
    "gap",
    "plan",
    "heads",
    "tuned_layers",
    "start",
    "config",
    "data",
    "model_sha256",
)
SAME_COSTS = ("rewards_asked", "rewards_computed", "tuning_steps")


@dataclass(frozen=True)
class Job:
    """Model, rows and settings on disk."""

    model: Path
    train: Path
    dev: Path
    config: Path

    def prune(self, out: Path, *more: str) -> list[str]:
        """The command line that prunes; it goes on with what is there."""
        words = [
            "prune",
            "--model",
            self.model,
            "--train",
            self.train,
            "--dev",
            self.dev,
            "--text",
            "text",
        ]
        words += [
            "--config",
            self.config,
            "--preset",
            "paper",
            "--out",
            run_of(out),
            "--resume",
            "--quiet",
            *more,
        ]
        return [str(word) for word in words]

    def commands(self, out: Path) -> list[list[str]]:
        """The whole job in a folder: prune, export unless that is done, and report."""
        export = [
            "export",
            str(run_of(out)),
            "--to",
            "dense",
            "--out",
            str(out / "dense"),
            "--quiet",
        ]
        report = ["report", str(out / "runs"), "--out", str(out / "tables")]
        return [self.prune(out), *([] if (out / "dense").exists() else [export]), report]


def run_of(out: Path) -> Path:
    """The run's folder in that of a job."""
    return out / "runs" / "run"


def make_job(folder: Path, *, is_quick: bool) -> Job:
    """The files of the job."""
    task = small_task(60 if is_quick else 120)
    for name, rows in (("train", task.train), ("dev", task.dev)):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(("text", "label"))
            writer.writerows(
                (text, label) for (text,), label in zip(rows.texts(), rows.labels, strict=True)
            )
    longer = {"agent__episodes": 60, "first__epochs": 8, "layer__epochs": 3, "last__epochs": 4}
    # The stop's value is so low that heads go.
    config = small_config(agent__stop_value=-1000.0, **({} if is_quick else longer))
    (folder / "soak.toml").write_text(config.to_toml(), encoding="utf-8")
    return Job(
        tiny_model_folder(folder).resolve(),
        (folder / "train.csv").resolve(),
        (folder / "dev.csv").resolve(),
        (folder / "soak.toml").resolve(),
    )


def outcome_of(out: Path) -> dict[str, Any]:
    """What must be the same however often the job was broken: plan, scores, metrics, weights, the export and the tables."""
    run = run_of(out)
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = {key: result[key] for key in SAME}
    found["cost"] = {key: result["cost"][key] for key in SAME_COSTS}
    found["plan.json"] = json.loads((run / "plan.json").read_text(encoding="utf-8"))
    found["scores"] = sorted((run / "scores.jsonl").read_text(encoding="utf-8").splitlines())
    found["weights"] = _digest(run / "model" / "model.safetensors")
    found["left behind"] = sorted(
        path.name for path in (*run.glob(".*"), *(run / "stages").glob(".*"))
    )
    for name in ("dense/model.safetensors", "tables/table2.csv", "tables/overfitting.csv"):
        if (out / name).exists():
            found[name] = _digest(out / name)
    return found


def phase_of(out: Path) -> str:
    """Where the job is, as its folders show it."""
    run = run_of(out)
    if (run / "result.json").is_file():
        return "reporting" if (out / "dense").exists() else "exporting"
    if not (run / "run.json").is_file():
        return "starting"
    if any(run.glob(".model.*")) or any((run / "stages").glob(".*")):
        return "saving"
    try:
        stage = (
            json.loads((run / "progress.json").read_text(encoding="utf-8"))["stage"] or {}
        ).get("name", "")
    except (OSError, ValueError):
        return "starting"
    if stage == "first tuning":
        return "fine-tuning"
    for word, phase in (("tuning", "tuning"), ("evaluating", "evaluating")):
        if word in stage:
            return phase
    return "search" if stage else "between stages"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
