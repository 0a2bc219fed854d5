from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from auber import api
from auber.data.splits import hold_out
from auber.errors import ConfigError, ModelError, RunError, TaskError
from auber.models import checkpoint
from auber.run import recipe, trials
from auber.run.recipe import RecipeRecord, choose_recipe, parse_list
from auber.run.stage_record import Trial
from auber.run.trials import halve
from auber.system.progress import Progress
from auber.system.records import read
from auber.training.monitor import DivergedError
from tests.small import small_config, small_start, small_task

RECORDED = Path(__file__).parents[2] / "results/rates/recipes.json"
GRID = {"rates": (1e-3, 1e-4), "epochs": (1, 2)}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return the folder of a tiny encoder without a classifier."""
    folder = tmp_path_factory.mktemp("recipe") / "tiny"
    checkpoint.save(*small_start(bare=True), folder)
    return folder


@pytest.fixture(scope="module")
def unbroken(model, tmp_path_factory):
    """Return the trials of one uninterrupted call."""
    return choose_recipe(model, small_task(), small_config(), tmp_path_factory.mktemp("r"), **GRID)


def scores(record):
    return [(trial.learning_rate, trial.epochs, trial.score) for trial in record.trials]


def test_fewer_rates_are_tried_for_more_epochs():
    tried = []

    def run_trial(rate, epochs):
        tried.append((rate, epochs))
        return Trial(learning_rate=rate, epochs=epochs, score=-rate, seconds=1)

    halve((1, 2, 3, 4, 5), (3, 6, 10), run_trial)
    rounds = {epochs: [rate for rate, each in tried if each == epochs] for epochs in (3, 6, 10)}
    assert rounds == {3: [1, 2, 3, 4, 5], 6: [1, 2, 3], 10: [1, 2]}


def test_ties_go_to_fewer_epochs_and_smaller_rates_and_a_diverged_trial_is_last():
    grid = [(2e-5, 3, 0.5), (1e-5, 3, 0.5), (1e-6, 6, 0.5), (1e-6, 1, None), (1e-4, 3, 0.4)]
    trials = [Trial(learning_rate=r, epochs=e, score=s, seconds=1) for r, e, s in grid]
    found = [(t.learning_rate, t.epochs) for t in sorted(trials, key=lambda trial: trial.rank)]
    assert found == [(1e-5, 3), (2e-5, 3), (1e-6, 6), (1e-4, 3), (1e-6, 1)]


@pytest.mark.parametrize("task", ["cola", "mrpc", "rte", "sst2", "subj", "trec"])
def test_halving_finds_a_recipe_close_to_the_best_of_the_recorded_grid(task):
    grid = {
        (each["rate"], each["epochs"]): each["score"]
        for each in json.loads(RECORDED.read_text())["trials"]
        if (each["model"], each["task"], each["seed"]) == ("minilm-l6", task, 100)
    }
    assert len(grid) == 9
    trials = halve(
        (5e-5, 1e-4, 2e-4),
        (3, 6, 10),
        lambda rate, epochs: Trial(
            learning_rate=rate, epochs=epochs, score=grid[rate, epochs], seconds=1
        ),
    )
    best = min(trials, key=lambda trial: trial.rank)
    assert len(trials) == 6
    assert best.score >= max(grid.values()) - (0.005 if task == "rte" else 0)


def test_a_trial_is_the_first_tuning_on_the_other_rows(model, unbroken):
    task, config = small_task(), small_config()
    assert (unbroken.rows_tuned, unbroken.rows_held_out) == (48, 12)
    rows = tuple(range(60))
    tuned, scored = hold_out(rows, task.train.labels, 0.2, config.seed)
    inner = dataclasses.replace(task, train=task.train.select(tuned), dev=task.train.select(scored))
    for trial in unbroken.trials:
        changed = {"first.learning_rate": trial.learning_rate, "first.epochs": trial.epochs}
        result = api.finetune(model, task=inner, config=config.replace(changed)).result
        assert trial.score == result["dev"]["score"]


def test_held_out_rows_are_a_share_of_each_class():
    labels = [0] * 50 + [1] * 30 + [2] * 20
    rest, held_out = hold_out(range(100), labels, 0.2, seed=3)
    assert sorted(rest + held_out) == list(range(100))
    assert Counter(labels[row] for row in held_out) == {0: 10, 1: 6, 2: 4}
    assert hold_out(range(100), labels, 0.2, seed=3) == (rest, held_out)
    assert hold_out(range(100), labels, 0.2, seed=4) != (rest, held_out)
    some, others = hold_out((1, 3, 5, 7, 9), None, 0.4, seed=0)
    assert (len(others), sorted(some + others)) == (2, [1, 3, 5, 7, 9])


@pytest.mark.parametrize(
    ("labels", "share", "message"),
    [
        ([0, 1, 2] * 4, 0.1, "at least one row of each of the 3 classes is needed, a share of 0.1"),
        (
            [0] * 20 + [1] * 20 + [2],
            0.2,
            "a class of a single row cannot be both tuned on and held",
        ),
    ],
)
def test_too_few_rows_to_hold_out(labels, share, message):
    with pytest.raises(TaskError, match=f"^held-out rows: {message}"):
        hold_out(range(len(labels)), labels, share, seed=0)


class Stopping(Progress):
    """Stop at the third stage."""

    def begin(self, stage, total):
        if self.finished == 2:
            raise KeyboardInterrupt
        super().begin(stage, total)


def test_an_interrupted_choice_resumes_to_the_same_trials(model, unbroken, tmp_path):
    arguments = (model, small_task(), small_config(), tmp_path / "o")
    with pytest.raises(KeyboardInterrupt):
        choose_recipe(*arguments, **GRID, progress=Stopping())
    place = tmp_path / "o" / "tuning.json"
    assert len(read(RecipeRecord, place, "").trials) == 2
    with pytest.raises(RunError, match="holds the trials of --tune; add --resume to continue, or"):
        choose_recipe(*arguments, **GRID)
    with pytest.raises(RunError, match=r"holds trials of another choice: rates was \[.*\] and is"):
        choose_recipe(*arguments, rates=(1e-3,), epochs=(1, 2), resume=True)
    found = choose_recipe(*arguments, **GRID, resume=True)
    assert scores(found) == scores(unbroken) == scores(read(RecipeRecord, place, ""))
    assert [path.name for path in place.parent.iterdir()] == ["tuning.json"]


def test_a_trial_that_diverges_is_not_chosen(model, tmp_path, monkeypatch):
    tune = trials.tune

    def diverge(model, rows, settings, **options):
        if settings.learning_rate > 1e-4:
            raise DivergedError("loss", 3)
        return tune(model, rows, settings, **options)

    monkeypatch.setattr(trials, "tune", diverge)
    arguments = (model, small_task(), small_config())
    found = choose_recipe(*arguments, tmp_path / "a", rates=(1e-3, 1e-4), epochs=(1,))
    assert [trial.score is None for trial in found.trials] == [False, True]
    assert found.best.learning_rate == 1e-4
    with pytest.raises(ConfigError, match="^--tune: every trial diverged; give smaller --rates$"):
        choose_recipe(*arguments, tmp_path / "b", rates=(1e-3,), epochs=(1,))


def test_settings_follow_the_choice(unbroken):
    config = unbroken.apply(small_config())
    best = unbroken.best
    assert (config.first.learning_rate, config.first.epochs) == (best.learning_rate, best.epochs)
    assert re.fullmatch(
        r"tuning: learning rate \S+ and \d epochs, accuracy \S+ on 12 held-out rows of train, "
        "the best of 3 trials.*",
        unbroken.describe(),
    )


@pytest.mark.parametrize(
    ("rates", "epochs", "message"),
    [
        ("1e-5,x", "3", "--rates must be numbers with commas between, found"),
        ("1e-5,1e-5", "3", "--rates must be different numbers between 0 and 1, such as"),
        ("nan", "3", "--rates must be different numbers between 0 and 1, such as"),
        ("1e-5", "3,x", "--epochs must be numbers with commas between, found"),
        ("1e-5", "0", "--epochs must be different whole numbers from 1, such as 3,6,10, found"),
    ],
)
def test_a_wrong_grid(model, tmp_path, rates, epochs, message):
    def choose():
        grid = {"rates": parse_list(rates, "--rates", float)}
        grid |= {"epochs": parse_list(epochs, "--epochs", int)}
        choose_recipe(model, small_task(), small_config(), tmp_path, **grid)

    with pytest.raises(ConfigError, match=f"^{message}"):
        choose()


def test_a_model_that_may_have_seen_the_rows_is_refused(tmp_path):
    checkpoint.save(*small_start(id2label={0: "unacceptable", 1: "acceptable"}), tmp_path / "tuned")
    arguments = (small_task(), small_config(), tmp_path / "o")
    with pytest.raises(ModelError, match="has a trained classifier, which may have seen the rows"):
        choose_recipe(tmp_path / "tuned", *arguments)
    (tmp_path / "tuned" / "run.json").write_text("{}")
    with pytest.raises(ModelError, match="is a run, whose model may have seen the rows to hold"):
        choose_recipe(tmp_path / "tuned", *arguments)


def test_a_process_group_is_refused(model, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "num_processes", lambda: 2)
    with pytest.raises(ConfigError, match="^--tune works in one process, found 2; tune first"):
        choose_recipe(model, small_task(), small_config(), tmp_path / "o")


def test_the_command_tunes_with_the_chosen_recipe_and_resumes(model, tmp_path, run_auber):
    command = ["finetune", "--model", model, "--task", "agreement", "--out", tmp_path / "o"]
    command += ["--set", "threads=1", "--set", "first.batch_size=100", "--seed", "3"]
    command += ["--tune", "--rates", "1e-3,1e-5", "--epochs", "1"]
    code, out, err = run_auber(*command)
    assert code == 0
    (line,) = [line for line in err.splitlines() if line.startswith("tuning: ")]
    best = read(RecipeRecord, tmp_path / "o" / "tuning.json", "").best
    assert f"learning rate {best.learning_rate:g} and 1 epochs" in line
    config = json.loads((tmp_path / "o" / "result.json").read_text())["config"]
    assert (config["first.learning_rate"], config["first.epochs"]) == (best.learning_rate, 1)
    code, again, _ = run_auber(*command, "--resume")
    assert (code, again) == (0, out)
    code, _, err = run_auber(*command[:7], "--rates", "1e-5")
    assert (code, err) == (2, "auber: --rates goes with --tune, found 1e-5; add --tune\n")
