"""An experiment judges whole runs on development rows that are cut from train."""

from __future__ import annotations

import json
from dataclasses import replace

import auber
from benchmarks import develop, tiny


def make_task(rows):
    """A task of this many golden rows."""
    train, dev = (tiny.GOLDEN / f"{split}.csv" for split in ("train", "dev"))
    task = auber.make_task(train, dev, name="words")
    return replace(task, train=task.train.select(range(rows)))


def test_an_experiment(tmp_path, monkeypatch):
    monkeypatch.setattr(develop, "load_task", lambda name, data: make_task(80))
    model = tiny.save_model(tmp_path / "model")
    words = ["--model", model, "--task", "words", "--preset", "paper", "--variant", "seed=1"]
    settings = tiny.SETTINGS | {"agent.stop_value": -1000.0}  # so that heads are removed
    words += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    words += ["--methods", "auber,random,original+tuning", "--out", tmp_path / "out.json"]
    develop.main([str(word) for word in words])
    found = json.loads((tmp_path / "out.json").read_text())
    assert list(found["runs"]) == ["auber", "random", "original+tuning", "seed=1"]
    removed = {name: run["num_removed"] for name, run in found["runs"].items()}
    assert removed["random"] == removed["auber"] > 0
    assert removed["original+tuning"] == 0
    assert found["rows"] == {"tuned": 60, "develop": 20}
