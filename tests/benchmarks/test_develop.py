"""Experiments: development rows are cut from train, and differences are paired by task and seed."""

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


def test_development_rows_are_cut_from_train():
    task = make_task(40)
    cut = develop.cut_development_rows(task, 0.25, seed=3)
    texts = list(cut.train.texts()) + list(cut.dev.texts())
    assert (len(cut.train), len(cut.dev)) == (30, 10)
    assert sorted(texts) == sorted(task.train.texts())
    assert sum(cut.dev.labels) == round(sum(task.train.labels) / 4)  # by class


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


def experiment(task, seed, **develop_scores):
    runs = {
        name: develop.RunRecord(
            develop=score, train=90.0, loss=None, num_removed=3, removed={}, cost={}
        )
        for name, score in develop_scores.items()
    }
    runs[develop.CONTROL] = runs.pop("control")
    return develop.Experiment(
        command="", model="m", task=task, seed=seed, rows={}, settings={}, provenance={}, runs=runs
    )


def test_differences_count_once_per_task_and_seed():
    some = [
        experiment("rte", 0, auber=60.0, control=58.0),
        experiment("rte", 0, auber=62.0, control=58.0),
        experiment("mrpc", 0, auber=80.0, control=81.0),
    ]
    (row,) = develop.compare(some).to_dict("records")
    assert (row["run"], row["pairs"], row["ahead in"]) == ("auber", 2, 1)
    assert row["develop"].startswith("+1.00 (")  # of +3 and -1
