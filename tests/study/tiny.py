"""A study that takes seconds, and listeners for tests."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

from auber.models import checkpoint
from auber.run import files as run_files
from auber.study.folder import Listener, Outcome, StudyFolder
from auber.study.plan import Block, Study, make_study
from tests.small import SETTINGS, small_start

# Few tuning steps, so that a run takes a second.
QUICK = {
    **SETTINGS,
    "first.epochs": 1,
    "layer.epochs": 1,
    "last.epochs": 1,
    "last.evaluations_per_epoch": 1,
    "first.batch_size": 100,
    "layer.batch_size": 100,
    "last.batch_size": 100,
    "agent.episodes": 3,
    "agent.stop_value": -1000.0,  # so that heads are removed
    "reward.max_rows": 40,
}
METHODS = ["auber", "random", "original", "original+tuning"]


def tiny_model_folder(folder: Path) -> Path:
    """Save a tiny encoder for the generated task; return its folder."""
    model, tokenizer = small_start(bare=True)
    checkpoint.save(model, tokenizer, folder / "tiny")
    return folder / "tiny"


def tiny_study(model: str | Path = "agreement", **changes: Any) -> Study:
    """Return a study with some keys changed."""
    tables = {
        "model": str(model),
        "tasks": ["agreement"],
        "methods": METHODS,
        "seeds": [0],
        "preset": "paper",
        "settings": QUICK,
    }
    return make_study({**tables, **changes})


class Notes(Listener):
    """A listener that notes how each run ended."""

    def __init__(self) -> None:
        self.ended: list[Outcome] = []
        self.said: list[str] = []

    def settled(self, outcome):
        self.ended.append(outcome)

    def say(self, text):
        self.said.append(text)


def results_of(study: Study, folder: Path) -> dict[str, Any]:
    """Return the results that must not depend on where a study is computed."""
    place = StudyFolder(folder)
    return {
        f"{block}/{run.name}": {
            key: run_files.read_result(place.run_path(block, run))[key]
            for key in ("plan", "dev", "train", "tuned_layers")
        }
        for block in study.blocks()
        for run in study.runs(block)
    }


class WorkerKiller:
    """Kill the process that works on a block when it begins the run `auber`, `times` times."""

    def __init__(self, folder: StudyFolder, block: Block, times: int = 1) -> None:
        self._folder, self._block, self._times = folder, block, times
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.killed = 0

    def __enter__(self) -> WorkerKiller:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        events = self._folder.run_path(self._block, "auber") / "events.jsonl"
        while self.killed < self._times and not self._stop.wait(0.005):
            lines = events.read_text().splitlines() if events.is_file() else []
            begun = [json.loads(line)["process"] for line in lines if '"process"' in line]
            if len(begun) > self.killed:
                os.kill(begun[-1], signal.SIGKILL)
                self.killed += 1
