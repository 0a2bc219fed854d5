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


def test_an_experiment(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(develop, "load_task", lambda name, data: make_task(80))
    model, out = tiny.save_model(tmp_path / "model"), tmp_path / "out.json"
    words = ["--model", model, "--task", "words", "--preset", "paper", "--keep", "0.8,0.5"]
    words += [word for key, value in tiny.SETTINGS.items() for word in ("--set", f"{key}={value}")]
    words += [
        "--arms",
        "original+tuning",
        "original+tuning,seed=9",
        "fisher",
        "random,size.multiple=1",
        "fisher,size.keep=0.6",
    ]
    develop.main([str(word) for word in [*words, "--out", out]])
    found = json.loads(out.read_text())
    sizes = {name: list(arm["models"]) for name, arm in found["arms"].items()}
    assert sizes == {
        "original+tuning": ["1"],
        "original+tuning,seed=9": ["1"],
        "fisher": ["0.8", "0.5"],
        "random,size.multiple=1": ["0.8", "0.5"],
        "fisher,size.keep=0.6": ["0.6"],
    }
    pruned = found["arms"]["fisher"]["models"]["0.5"]
    assert 0.4 < pruned["remaining"] <= 0.5
    assert found["rows"] == {"tuned": 60, "develop": 20}
    capsys.readouterr()
    develop.main(["--compare", str(out)])
    lines = [line for line in capsys.readouterr().out.splitlines() if "fisher" in line]
    control = found["arms"]["original+tuning"]["models"]["1"]
    assert f"{pruned['develop'] - control['develop']:+.2f}" in lines[1]
    develop.main(["--compare", str(out), "--against", "fisher"])
    lines = [line for line in capsys.readouterr().out.splitlines() if "random" in line]
    other = found["arms"]["random,size.multiple=1"]["models"]["0.5"]
    assert f"{other['develop'] - pruned['develop']:+.2f}" in lines[1]
