"""Plans of several sizes out of one search, and what is said of them out of fold."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch

from auber.evaluation import predict
from auber.plan import PruningPlan
from experiments import path, summary
from experiments.path import out_of_fold, plan_at, plan_of_size
from experiments.subject import make_folds, measures
from tests.small import small_rows, small_start


def test_a_higher_price_removes_more():
    scores = {0: {(): 0.80, (1,): 0.7998, (1, 2): 0.7990}, 3: {(): 0.8, (0,): 0.801}}
    assert plan_at(0, scores) == PruningPlan({3: [0]})
    assert plan_at(0.03, scores) == PruningPlan({0: [1], 3: [0]})
    assert plan_at(0.2, scores) == PruningPlan({0: [1, 2], 3: [0]})


def test_of_equals_the_smaller_plan():
    assert plan_at(0, {0: {(1,): 0.5, (): 0.5}}) == PruningPlan()


def test_a_size_is_reached_at_the_lowest_price():
    scores = {0: {(): 0.80, (1,): 0.7998, (1, 2): 0.7990}, 3: {(): 0.8, (0,): 0.801}}
    for size, plan, price in ((1, {3: [0]}, -0.1), (2, {0: [1], 3: [0]}, 0.02), (3, {0: [1, 2], 3: [0]}, 0.08)):
        found, paid = plan_of_size(size, scores)
        assert found == PruningPlan(plan)
        assert paid == pytest.approx(price, abs=1e-6)
    assert plan_of_size(9, scores)[0] == PruningPlan({0: [1, 2], 3: [0]})


def test_each_row_is_scored_by_the_model_of_its_fold():
    rows, folds = small_rows(20), make_folds(20, 2, 0)
    models = [small_start(seed=seed)[0] for seed in (1, 2)]
    task = type("Task", (), {"metric": "accuracy"})()
    subject = type("Subject", (), {"rows": rows, "task": task})()
    logits = torch.stack([predict(models[folds[row]], rows.select([row]))[0] for row in range(20)])
    assert out_of_fold(subject, models, folds) == pytest.approx(measures(logits, rows.labels, "accuracy"), abs=1e-3)


def run(develop, fold=None, heads=0):
    found = {"develop": [develop, develop, -60.0, develop], "train": [90.0] * 3, "num_removed": heads, "seconds": 5.0}
    return found if fold is None else {**found, "out_of_fold": [fold, fold, -60.0, -50.0 + fold]}


def test_the_choice_out_of_fold_is_judged_on_develop():
    runs = {"original+tuning": run(60.0, 61.0), "4 heads": run(59.0, 62.0, 4), "30 heads": run(63.0, 60.0, 30)}
    _, rows = summary.path_table([{"runs": runs}, {"runs": runs}])
    assert [row[:3] for row in rows] == [
        ["4 heads", "2", "-1.00"],
        ["30 heads", "2", "+3.00"],
        ["the best by metric out of fold", "2", "-1.00"],
        ["the best by calibrated log-likelihood out of fold", "2", "-1.00"],
    ]
    assert [row[-1] for row in rows] == ["4", "30", "4", "4"]


def test_of_equals_out_of_fold_nothing_is_removed():
    runs = {"original+tuning": run(60.0, 61.0), "4 heads": run(59.0, 61.0, 4)}
    _, rows = summary.path_table([{"runs": runs}])
    assert rows[1][:3] == ["the best by metric out of fold", "1", "+0.00"]


def test_the_program(tmp_path, monkeypatch):
    made = {}
    monkeypatch.setattr(path, "make_subject", lambda *_: made["subject"])
    made["subject"] = tiny_subject(tmp_path)
    out = tmp_path / "path.json"
    words = [
        "--model",
        "tiny",
        "--task",
        "agreement",
        "--folds",
        "2",
        "--heads",
        "1,5",
        "--rankings",
        "random",
        "--out",
    ]
    monkeypatch.setattr(sys, "argv", ["path", *words, str(out)])
    path.main()
    found = json.loads(out.read_text())
    names = ["original+tuning", "1 heads", "random like 1 heads", "5 heads", "random like 5 heads"]
    assert list(found["runs"]) == names
    removed = {name: run["num_removed"] for name, run in found["runs"].items()}
    assert removed["1 heads"] == removed["random like 1 heads"] < removed["5 heads"] == removed["random like 5 heads"]
    assert all(
        np.isfinite(found["runs"][name]["out_of_fold"]).all() for name in ("original+tuning", "1 heads", "5 heads")
    )
    assert found["search"]["rewards"] > 3


def test_a_ripe_scout_never_sees_its_fold(tmp_path, monkeypatch):
    from experiments import subject as module

    subject, seen = tiny_subject(tmp_path), []
    monkeypatch.setattr(module, "tune", lambda _, rows, __, watch=None, **___: seen.append((rows, watch)))
    subject.all_tuned(range(25))
    known = {tuple(row) for row in subject.rows.select(range(25)).input_ids}
    assert len(seen) == 2 + subject.num_layers
    assert seen[-1][1] is not None
    for rows in (*(rows for rows, _ in seen), seen[-1][1][0]):
        assert {tuple(row) for row in rows.input_ids} <= known


def tiny_subject(folder):
    """The generated task and a tiny encoder of its own."""
    from auber import checkpoint
    from auber.encoders import encoder_of
    from experiments.subject import Subject
    from tests.small import cpu, small_config, small_task

    model, tokenizer = small_start(bare=True)
    checkpoint.save(model, tokenizer, folder / "tiny")
    rows = small_rows(60)
    config = small_config(agent__choose="best", first__epochs=1, last__epochs=1)
    develop = rows.select(range(40, 60))
    return Subject(
        str(folder / "tiny"),
        small_task(60),
        config,
        cpu(),
        rows.select(range(40)),
        develop,
        encoder_of(model).num_layers,
    )
