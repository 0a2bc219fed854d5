"""A job of seconds, also for the tests: settings, the golden tests' tiny encoder and sentences."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from auber.config import Config, make_config
from benchmarks.common import ROOT

GOLDEN = ROOT / "tests" / "golden"
SETTINGS: dict[str, Any] = {
    "threads": 1,
    "device": "cpu",
    "max_length": 24,
    "first.require_learned": False,
    "first.epochs": 2,
    "first.learning_rate": 1e-3,
    "layer.epochs": 1,
    "layer.learning_rate": 1e-3,
    "last.epochs": 2,
    "last.learning_rate": 1e-3,
    "agent.episodes": 6,
    "agent.hidden_size": 16,
    "agent.learning_starts": 8,
    "agent.batch_size": 8,
}


def make_settings(**changes: Any) -> Config:
    """Return settings for a run of seconds; write `__` for the dot in the keys of changes."""
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    return make_config("paper", settings=SETTINGS | dotted)


def save_model(folder: Path) -> Path:
    """Copy the encoder, which has two layers of four heads."""
    return Path(shutil.copytree(GOLDEN / "model", folder))


def write_rows(folder: Path, rows: int) -> None:
    """Write the first rows to `train.csv` and `dev.csv`."""
    for name in ("train.csv", "dev.csv"):
        lines = (GOLDEN / name).read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / name).write_text("".join(lines[: rows + 1]), encoding="utf-8")
