"""A trial is the first tuning on what is left, and what cannot be tried is refused."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from auber import api
from auber.config import make_config
from auber.data.task import TaskData
from auber.errors import ConfigError, ModelError
from auber.models import checkpoint
from auber.run.rates.choice import choose_rate, to_json
from auber.run.rates.grid import Grid
from auber.run.rates.tunings import SETTINGS, hold_out, majority_score, try_rates
from tests.run.rates.made import GRID, QUICK, scores_of, task_of
from tests.small import small_start, small_task


def test_a_trial_is_the_first_tuning_on_what_is_left(model, unbroken):
    task, seed, rate = small_task(), 1, 1e-3
    rest, held_out = hold_out(task, 0.2, seed)
    inner = dataclasses.replace(
        task, train=task.train.select(rest), dev=task.train.select(held_out)
    )
    config = make_config(settings={**QUICK, "seed": seed, "first.learning_rate": rate})
    result = api.finetune(model, task=inner, config=config).result
    (trial,) = [trial for trial in unbroken.trials if trial.key == (task.name, seed, rate)]
    assert (trial.score, trial.loss) == (result["dev"]["score"], result["dev"]["loss"])
    assert trial.steps == result["cost"]["tuning_steps"]
    assert trial.majority == result["dev"]["majority"]


def test_every_trial_is_there_and_dev_has_no_part_in_it(model, unbroken):
    assert [trial.key for trial in unbroken.trials] == [
        ("agreement", seed, rate) for seed in (0, 1) for rate in (1e-4, 1e-3)
    ]
    task = small_task()
    (described,) = unbroken.tasks
    assert (described.rows_tuned, described.rows_held_out, described.data) == (
        48,
        12,
        task.content_hash,
    )
    other = dataclasses.replace(task, dev=task.dev.select([0, 1]))
    assert scores_of(try_rates(model, [other], GRID, settings=QUICK)) == scores_of(unbroken)


def test_a_task_keeps_its_own_settings_but_for_the_rate(model):
    tasks = [dataclasses.replace(small_task(), name=name) for name in ("rte", "mrpc")]
    settings = {key: value for key, value in QUICK.items() if key != "first.epochs"}
    record = try_rates(model, tasks, Grid((1e-3,), (0,)), preset="paper", settings=settings)
    assert [(task.name, task.epochs, task.batch_size) for task in record.tasks] == [
        ("rte", 4, 32),
        ("mrpc", 3, 32),
    ]
    assert [trial.steps for trial in record.trials] == [4 * 2, 3 * 2]  # 48 rows are two batches


def test_a_rate_that_diverges_is_shown_as_such(model):
    record = try_rates(model, [small_task()], Grid((1e-3, 1e30), (0,)), settings=QUICK)
    diverged = record.trials[1]
    assert diverged.loss is None
    assert diverged.one_class
    choice = choose_rate(record)
    assert (
        "agreement at 1e+30: every held-out row got the same answer with 1 of 1 seeds"
        in choice.notes
    )
    assert "NaN" not in json.dumps(to_json(record))


def test_a_regression_is_compared_with_its_mean(model):
    task = small_task()
    labels = tuple(0.1 * row for row in range(len(task.train)))
    rows = dataclasses.replace(task.train, labels=labels)
    task = TaskData("own", rows, rows.select(range(4)), None, "pearson")
    (trial,) = try_rates(model, [task], Grid((1e-3,), (0,)), settings=QUICK).trials
    assert trial.majority == 0.0
    assert not trial.one_class
    assert -1 <= trial.score <= 1


@pytest.mark.parametrize(
    ("metric", "score"), [("accuracy", 0.75), ("matthews", 0.0), ("f1", 6 / 7)]
)
def test_the_majority_is_scored_by_the_metric(metric, score):
    task = task_of([0, 1, 1, 1], ("no", "yes"), metric)
    labels = torch.tensor([0, 1, 1, 1])
    assert majority_score(labels, labels, task) == pytest.approx(score)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"agent.gama": 1}, "settings: Unknown setting 'agent.gama'. Did you mean 'agent.gamma'?"),
        (
            {"agent.gamma": 1},
            f"settings: trying rates reads {', '.join(SETTINGS)}, found agent.gamma; leave it out",
        ),
        ({"seed": 1}, "settings: trying rates reads .*, found seed; give --seeds"),
        (
            {"first.learning_rate": 1e-5},
            "settings: trying rates reads .*, found first.learning_rate; give --rates",
        ),
        (
            {"first.epochs": 0},
            "settings: first.epochs must be at least 1 to try rates on agreement, found 0",
        ),
    ],
)
def test_settings_that_have_no_part_in_it(model, settings, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        try_rates(model, [small_task()], GRID, settings=settings)


def test_rows_longer_than_the_encoder_are_refused_before_anything_is_tuned(tmp_path):
    checkpoint.save(*small_start(bare=True, max_position_embeddings=10), tmp_path / "short")
    with pytest.raises(
        ConfigError,
        match="^task agreement: a train row has [0-9]+ tokens and BertForSequenceClassification positions for 10; set max_length=10$",
    ):
        try_rates(
            tmp_path / "short", [small_task()], GRID, settings=QUICK, out=tmp_path / "rates.json"
        )
    assert not (tmp_path / "rates.json").exists()


@pytest.mark.parametrize(("times", "found"), [(0, "none"), (2, "agreement, agreement")])
def test_tasks_must_differ(model, times, found):
    with pytest.raises(
        ConfigError, match=f"^rates are tried on different tasks, at least one, found {found}$"
    ):
        try_rates(model, [small_task()] * times, GRID)


def test_a_process_group_is_refused(model, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(
        ConfigError,
        match="^rates are tried in one process, found a group of 2; start it without torchrun$",
    ):
        try_rates(model, [small_task()], GRID)


def test_a_model_that_may_have_seen_the_rows_is_refused(tmp_path):
    checkpoint.save(*small_start(id2label={0: "unacceptable", 1: "acceptable"}), tmp_path / "tuned")
    with pytest.raises(
        ModelError,
        match="has a trained classifier, which may have seen the rows to hold out; give the",
    ):
        try_rates(tmp_path / "tuned", [small_task()], GRID, settings=QUICK)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(
        ModelError, match="is a run, whose model has seen the rows to hold out; give the pretrained"
    ):
        try_rates(tmp_path, [small_task()], GRID, settings=QUICK)
