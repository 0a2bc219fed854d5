"""The learning rate that is chosen by short trials on held-out rows."""

from __future__ import annotations

import json

import pytest

import auber
from auber.config import FirstTuning
from auber.data.splits import hold_out
from auber.errors import ConfigError
from auber.run import trials, tunings
from auber.run.files import read_json
from auber.run.folder import Run
from auber.run.stage_record import Trial
from auber.run.trials import RATES, choose_rate
from auber.system.progress import Progress
from tests.run.test_fold_models import CutError, same_weights
from tests.small import Messages, cpu, small_config, small_rows, small_start, small_task

TASK = small_task()
AUTO = {
    "first__learning_rate": "auto",
    "layer__learning_rate": "auto",
    "last__learning_rate": "auto",
}


def choose(monkeypatch, scores, error=0.02, labels=None):
    """Return the choice for scores by rate after three epochs, and the rows of each trial."""
    used = []

    def score(model, tuned, scored, settings, metric, **options):
        used.append((settings.epochs, len(tuned), len(scored), metric))
        found = scores[settings.learning_rate]
        return Trial(
            learning_rate=settings.learning_rate,
            epochs=settings.epochs,
            score=found,
            error=error,
            seconds=1.5,
        )

    monkeypatch.setattr(trials, "try_tuning", score)
    model, rows = small_start()[0], small_rows(60)
    choice = choose_rate(
        model, rows, tuple(range(60)), labels, "accuracy", FirstTuning(),
        seed=0, hardware=cpu(), progress=Progress(),
    )  # fmt: skip
    return choice, used


@pytest.mark.parametrize(
    ("scores", "rate"),
    [
        ((0.1, 0.2, 0.3, 0.4), 2e-4),
        ((0.1, 0.2, 0.39, 0.4), 1e-4),  # within the error of the best
        ((0.1, 0.2, 0.37, 0.4), 2e-4),
        ((0.3, 0.31, None, 0.1), 2e-5),
        ((None, None, None, 0.1), 2e-4),
    ],
)
def test_the_lowest_rate_within_the_error_of_the_best_is_chosen(monkeypatch, scores, rate):
    choice, used = choose(monkeypatch, dict(zip(RATES, scores, strict=True)))
    assert choice.rate == rate
    assert used == [(3, 48, 12, "explained")] * len(RATES)


def test_the_choice_in_one_line(monkeypatch):
    choice, _ = choose(monkeypatch, dict(zip(RATES, (0.1, 0.2, 0.613, 0.4), strict=True)))
    assert choice.describe() == (
        "learning rate 0.0001, chosen from 2e-05, 5e-05, 0.0001, 0.0002 in 6 s: each was tried "
        "for 3 epochs and scored on 12 held-out rows of train"
    )


def test_where_every_trial_diverges_there_is_no_rate(monkeypatch):
    message = (
        "^first.learning_rate: auto found no rate, every trial diverged; set a lower one than 2e-05"
    )
    with pytest.raises(ConfigError, match=message):
        choose(monkeypatch, dict.fromkeys(RATES))


def test_classes_of_a_single_row_do_not_stop_the_trials(monkeypatch):
    labels = [0] * 30 + [1] * 29 + [2]
    choice, _ = choose(monkeypatch, dict.fromkeys(RATES, 0.1), labels=labels)
    assert choice.rows == 12


def test_a_trial_tunes_on_some_rows_and_scores_others(monkeypatch):
    """The score is what the tuned model explains of rows that it has not seen."""
    monkeypatch.setattr(trials, "RATES", (1e-5, 3e-3))
    model, _ = small_start()
    rows, labels = small_rows(60), TASK.train.labels
    choice = choose_rate(
        model, rows, tuple(range(60)), labels, "accuracy", FirstTuning(batch_size=16),
        seed=3, hardware=cpu(), progress=Progress(),
    )  # fmt: skip
    assert [trial.epochs for trial in choice.trials] == [3, 3]
    assert same_weights(model, small_start()[0]), "the model itself is not tuned"
    tuned, scored = hold_out(tuple(range(60)), labels, 0.2, 3)
    settings = FirstTuning(batch_size=16, learning_rate=choice.trials[-1].learning_rate, epochs=3)
    again = trials.try_tuning(
        model, rows.select(tuned), rows.select(scored), settings, "explained",
        seed=3, hardware=cpu(), progress=Progress(),
    )  # fmt: skip
    assert (again.score, again.error) == (choice.trials[-1].score, choice.trials[-1].error)
    assert 0 < again.error < 0.5


def prune(out, method="auber", model=None, heads=None, resume=False, progress=None, **changes):
    start, tokenizer = small_start()
    config = small_config(**{"first__when": "always", **AUTO, **changes})
    return auber.prune(
        model or start, tokenizer, task=TASK, method=method, heads=heads, config=config, out=out,
        resume=resume, progress=progress,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a run that chose its rate, and the rates of its tunings."""
    folder, rates = tmp_path_factory.mktemp("auto") / "run", []
    tune = tunings.tune

    def listen(model, rows, settings, **options):
        rates.append(settings.learning_rate)
        return tune(model, rows, settings, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tunings, "tune", listen)
        messages = Messages()
        found = prune(folder, reward__head=5.0, progress=messages)
    return found, folder, rates, messages.said


def test_all_tunings_use_the_chosen_rate(run):
    found, folder, rates, said = run
    stage = read_json(folder / "stages" / "rate.json")
    assert stage["rate"] == found.result["learning_rate"]
    assert len(stage["rate_trials"]) == len(RATES)
    assert found.result["config"]["first.learning_rate"] == "auto"
    assert len(rates) == 1 + len(found.result["tuned_layers"]) + 1 > 2
    assert set(rates) == {stage["rate"]} <= set(RATES)
    assert len([line for line in said if line.startswith("learning rate ")]) == 1


@pytest.mark.parametrize("cut", ["rate", "first", "layer-01"])
def test_a_resumed_run_has_the_same_rate(run, cut, monkeypatch, tmp_path):
    finish, tried, attempt = Run.finish_stage, [], trials.try_tuning

    def stop(self, stage, *rest, **options):
        if stage == cut:
            raise CutError
        return finish(self, stage, *rest, **options)

    def listen(*arguments, **options):
        tried.append(1)
        return attempt(*arguments, **options)

    monkeypatch.setattr(trials, "try_tuning", listen)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "finish_stage", stop)
        with pytest.raises(CutError):
            prune(tmp_path / "run", reward__head=5.0)
    again = prune(tmp_path / "run", reward__head=5.0, resume=True)
    assert len(tried) == len(RATES) * (2 if cut == "rate" else 1)
    assert again.result["learning_rate"] == run[0].result["learning_rate"]
    assert same_weights(again.model, run[0].model)


def test_a_given_rate_of_the_first_tuning_is_that_of_later_ones(tmp_path, monkeypatch):
    rates, tune = [], tunings.tune

    def listen(model, rows, settings, **options):
        rates.append(settings.learning_rate)
        return tune(model, rows, settings, **options)

    monkeypatch.setattr(tunings, "tune", listen)
    prune(tmp_path / "run", first__learning_rate=4e-4, reward__head=5.0)
    assert set(rates) == {4e-4}
    assert not (tmp_path / "run" / "stages" / "rate.json").exists()


def test_runs_that_are_compared_share_a_rate(run, tmp_path):
    """A matched run, and a run of the same start, have its rate without trials."""
    messages = Messages()
    matched = prune(tmp_path / "matched", "random", heads=run[1], progress=messages)
    rate = run[0].result["learning_rate"]
    assert matched.result["learning_rate"] == rate
    line = f"learning rate {rate:g}: the matched run was tuned with it (first.learning_rate)"
    assert line in messages.said
    model, tokenizer = small_start()
    start = auber.finetune(
        model, tokenizer, task=TASK, config=small_config(**AUTO), out=tmp_path / "start"
    )
    assert start.result["learning_rate"] == rate
    after = prune(tmp_path / "after", model=tmp_path / "start", first__when="never")
    assert after.result["learning_rate"] == rate
    assert "rate_trials" not in json.loads((tmp_path / "after/stages/rate.json").read_text())


def test_a_model_tuned_elsewhere_gets_the_usual_rate_and_the_reason(tmp_path):
    messages = Messages()
    found = prune(tmp_path / "run", first__when="never", progress=messages)
    assert found.result["learning_rate"] == 2e-5
    assert (
        "learning rate 2e-05: the usual one, because the model has been fine-tuned elsewhere, and "
        "no rows of train are left to choose it on; set last.learning_rate to change it"
    ) in messages.said
