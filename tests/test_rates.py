from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter

import pytest
import torch

from auber import api, checkpoint
from auber.config import make_config
from auber.errors import ConfigError, ModelError, RunError, TaskError
from auber.progress import Silent
from auber.rates.choice import RULE, choose_rate, to_json
from auber.rates.grid import Grid, parse_rates, parse_seeds
from auber.rates.record import Conditions, Record, TaskRecord, Trial, read_record
from auber.rates.tunings import SETTINGS, hold_out, majority_score, try_rates
from auber.tasks.base import Rows, TaskData
from tests.small import small_start, small_task

QUICK = {"threads": 1, "device": "cpu", "max_length": 24, "first.epochs": 1}
GRID = Grid((1e-4, 1e-3), (0, 1))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a tiny encoder without a classifier."""
    folder = tmp_path_factory.mktemp("rates") / "tiny"
    checkpoint.save(*small_start(bare=True), folder)
    return folder


@pytest.fixture(scope="module")
def unbroken(model):
    """The grid tried at one go."""
    return try_rates(model, [small_task()], GRID, settings=QUICK)


def scores_of(record):
    return {trial.key: (trial.score, trial.loss, trial.majority, trial.steps) for trial in record.trials}


# --- what is asked ----------------------------------------------------------------------------------------------------


def test_numbers_with_commas():
    assert parse_rates("1e-4, 2e-5") == (2e-5, 1e-4)
    assert parse_seeds("2, 0") == (2, 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: parse_rates("1e-5;2"),
            "--rates must be numbers with commas between, such as 1e-5,2e-5, found '1e-5;2'",
        ),
        (lambda: parse_seeds("0,-1"), "--seeds must be whole numbers with commas between, such as 0,1,2, found '0,-1'"),
        (lambda: Grid((), (0,)), "--rates must be different numbers above 0, such as 1e-5,2e-5,5e-5, found none"),
        (lambda: Grid((1e-5, 1e-5), (0,)), "--rates must be different numbers above 0, .*, found 1e-05,1e-05"),
        (lambda: Grid((0.0, 1e-5), (0,)), "--rates must be different numbers above 0, .*, found 0,1e-05"),
        (lambda: Grid((math.inf,), (0,)), "--rates must be different numbers above 0, .*, found inf"),
        (lambda: Grid((1e-5,), ()), "--seeds must be different whole numbers from 0, such as 0,1,2, found none"),
        (lambda: Grid((1e-5,), (1, 1)), "--seeds must be different whole numbers from 0, such as 0,1,2, found 1,1"),
        (lambda: Grid((1e-5,), (-1,)), "--seeds must be different whole numbers from 0, such as 0,1,2, found -1"),
        (lambda: Grid((1e-5,), (0,), 1.0), "--held-out must be a share above 0 and below 1, found 1"),
    ],
)
def test_a_grid_that_cannot_be(make, message):
    with pytest.raises(ConfigError, match=f"^{message}$"):
        make()


# --- the rows held out ------------------------------------------------------------------------------------------------


def task_of(labels, label_names=("no", "yes", "maybe"), metric="accuracy"):
    rows = Rows(tuple(f"the key is red {row}" for row in range(len(labels))), None, tuple(labels))
    return TaskData("own", rows, rows.select([0]), label_names, metric)


def test_held_out_rows_are_a_share_of_each_class():
    task = task_of([0] * 50 + [1] * 30 + [2] * 20)
    rest, held_out = hold_out(task, 0.2, seed=3)
    assert sorted(rest + held_out) == list(range(100))
    assert Counter(task.train.labels[row] for row in held_out) == {0: 10, 1: 6, 2: 4}
    assert hold_out(task, 0.2, seed=3) == (rest, held_out)
    assert hold_out(task, 0.2, seed=4) != (rest, held_out)


def test_held_out_rows_of_a_regression():
    rest, held_out = hold_out(task_of([0.5 * row for row in range(10)], None, "pearson"), 0.3, seed=0)
    assert (len(rest), len(held_out)) == (7, 3)
    assert sorted(rest + held_out) == list(range(10))


@pytest.mark.parametrize(
    ("labels", "share", "message"),
    [
        ([0, 1, 2] * 4, 0.1, "own: from 3 to 11 of its 12 rows of train can be held out, a share of 0.1 is 1; choose"),
        ([0, 1, 2] * 4, 0.99, "own: from 3 to 11 of its 12 rows of train can be held out, a share of 0.99 is 12;"),
        (
            [0] * 20 + [1] * 20 + [2],
            0.2,
            "own: some rows of each class must be left to tune on, all 1 of class 'maybe' would be held out; add some",
        ),
    ],
)
def test_too_few_rows_to_hold_out(labels, share, message):
    with pytest.raises(TaskError, match=f"^{message}"):
        hold_out(task_of(labels), share, seed=0)


# --- trials -----------------------------------------------------------------------------------------------------------


def test_a_trial_is_the_first_tuning_on_what_is_left(model, unbroken):
    task, seed, rate = small_task(), 1, 1e-3
    rest, held_out = hold_out(task, 0.2, seed)
    inner = dataclasses.replace(task, train=task.train.select(rest), dev=task.train.select(held_out))
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
    assert (described.rows_tuned, described.rows_held_out, described.data) == (48, 12, task.content_hash)
    other = dataclasses.replace(task, dev=task.dev.select([0, 1]))
    assert scores_of(try_rates(model, [other], GRID, settings=QUICK)) == scores_of(unbroken)


def test_a_task_keeps_its_own_settings_but_for_the_rate(model):
    tasks = [dataclasses.replace(small_task(), name=name) for name in ("rte", "mrpc")]
    settings = {key: value for key, value in QUICK.items() if key != "first.epochs"}
    record = try_rates(model, tasks, Grid((1e-3,), (0,)), preset="paper", settings=settings)
    assert [(task.name, task.epochs, task.batch_size) for task in record.tasks] == [("rte", 4, 32), ("mrpc", 3, 32)]
    assert [trial.steps for trial in record.trials] == [4 * 2, 3 * 2]  # 48 rows are two batches


def test_a_rate_that_diverges_is_shown_as_such(model):
    record = try_rates(model, [small_task()], Grid((1e-3, 1e30), (0,)), settings=QUICK)
    diverged = record.trials[1]
    assert diverged.loss is None
    assert diverged.one_class
    choice = choose_rate(record)
    assert "agreement at 1e+30: every held-out row got the same answer with 1 of 1 seeds" in choice.notes
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


@pytest.mark.parametrize(("metric", "score"), [("accuracy", 0.75), ("matthews", 0.0), ("f1", 6 / 7)])
def test_the_majority_is_scored_by_the_metric(metric, score):
    task = task_of([0, 1, 1, 1], ("no", "yes"), metric)
    labels = torch.tensor([0, 1, 1, 1])
    assert majority_score(labels, labels, task) == pytest.approx(score)


# --- going on ---------------------------------------------------------------------------------------------------------


class Follower(Silent):
    """Takes down the stages, and stops the work when so many have ended."""

    def __init__(self, stop_after=None):
        self.stages, self.notes, self.said, self.planned = [], [], [], None
        self._stop_after, self._note = stop_after, ""

    def plan(self, stages):
        self.planned = stages

    def begin(self, stage, total):
        if len(self.stages) == self._stop_after:
            raise KeyboardInterrupt
        self.stages.append(stage)

    def step(self, done, note=""):
        self._note = note

    def end(self):
        self.notes.append(self._note)

    def say(self, text):
        self.said.append(text)


def test_what_was_cut_goes_on_where_it_was(model, unbroken, tmp_path):
    out = tmp_path / "new" / "rates.json"
    with pytest.raises(KeyboardInterrupt):
        try_rates(model, [small_task()], GRID, settings=QUICK, out=out, progress=Follower(stop_after=3))
    kept = json.loads(out.read_text())
    assert (len(kept["trials"]), kept["choice"]) == (3, None)
    follower = Follower()
    record = try_rates(model, [small_task()], GRID, settings=QUICK, out=out, progress=follower)
    assert (follower.planned, follower.stages) == (1, ["agreement seed 1 rate 0.001"])
    assert follower.said == [f"{out}: 3 of 4 tunings are there already"]
    assert follower.notes == [f"accuracy {100 * record.trials[-1].score:.2f}"]
    assert scores_of(record) == scores_of(unbroken)
    assert read_record(out) == record
    kept = json.loads(out.read_text())
    assert (kept["format"], kept["kind"], kept["choice"]["rule"]) == (1, "rates", RULE)
    assert kept["provenance"]["threads"] == 1


def test_a_grid_can_grow_and_shrink_in_one_file(model, unbroken, tmp_path):
    out = tmp_path / "rates.json"
    out.write_text(json.dumps(to_json(unbroken)))
    follower = Follower()
    second = dataclasses.replace(small_task(), name="second")
    record = try_rates(model, [second], Grid((1e-3,), (0,)), settings=QUICK, out=out, progress=follower)
    assert follower.stages == ["second seed 0 rate 0.001"]
    assert len(record.trials) == 5
    assert choose_rate(record).rates == (1e-3,)
    assert [task.name for task in record.tasks] == ["agreement", "second"]
    follower = Follower()
    record = try_rates(model, [small_task()], GRID, settings=QUICK, out=out, progress=follower)
    assert follower.stages == []
    assert choose_rate(record) == choose_rate(unbroken)
    assert len(record.trials) == 5


def test_trials_of_another_kind_do_not_share_a_file(model, unbroken, tmp_path):
    out = tmp_path / "rates.json"
    out.write_text(json.dumps(to_json(unbroken)))
    before = out.read_text()
    message = (
        "rates.json: holds trials of another kind: held_out was 0.2 and is now 0.3, agreement: rows_tuned was 48 and is now 42, "
        "agreement: rows_held_out was 12 and is now 18, agreement: epochs was 1 and is now 2; use the same or another --out"
    )
    with pytest.raises(RunError, match=f"{message}$"):
        try_rates(model, [small_task()], Grid((1e-3,), (0,), 0.3), settings={**QUICK, "first.epochs": 2}, out=out)
    assert out.read_text() == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "rates.json: cannot be read as JSON \\(.*\\); choose another --out"),
        ('{"kind": "bench"}', "rates.json: must be a result of 'auber rates', found something else; choose another"),
        ('{"kind": "rates", "format": 2}', "rates.json: format 1 can be read, found 2; choose another --out"),
        ('{"kind": "rates", "format": 1}', "rates.json: is damaged \\('command'\\); choose another --out"),
    ],
)
def test_another_file_is_left_alone(model, tmp_path, text, message):
    out = tmp_path / "rates.json"
    out.write_text(text)
    with pytest.raises(RunError, match=message):
        try_rates(model, [small_task()], GRID, settings=QUICK, out=out)
    assert out.read_text() == text


def test_a_trial_of_a_wrong_type_is_damage(unbroken):
    data = json.loads(json.dumps(to_json(unbroken)))
    data["trials"][0]["score"] = "high"
    with pytest.raises(RunError, match="^here: is damaged \\(score 'high'\\); choose another --out$"):
        Record.from_json(data, "here")


def test_a_file_that_cannot_be_written_is_found_out_first(model, tmp_path):
    (tmp_path / "file").touch()
    follower = Follower()
    with pytest.raises(RunError, match="cannot be written \\(.*\\); choose another --out"):
        try_rates(model, [small_task()], GRID, settings=QUICK, out=tmp_path / "file" / "x.json", progress=follower)
    assert follower.stages == []


# --- what cannot be tried ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"agent.gama": 1}, "settings: Unknown setting 'agent.gama'. Did you mean 'agent.gamma'?"),
        ({"agent.gamma": 1}, f"settings: trying rates reads {', '.join(SETTINGS)}, found agent.gamma; leave it out"),
        ({"seed": 1}, "settings: trying rates reads .*, found seed; give --seeds"),
        ({"first.learning_rate": 1e-5}, "settings: trying rates reads .*, found first.learning_rate; give --rates"),
        ({"first.epochs": 0}, "settings: first.epochs must be at least 1 to try rates on agreement, found 0"),
    ],
)
def test_settings_that_have_no_part_in_it(model, settings, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        try_rates(model, [small_task()], GRID, settings=settings)


@pytest.mark.parametrize(("times", "found"), [(0, "none"), (2, "agreement, agreement")])
def test_tasks_must_differ(model, times, found):
    with pytest.raises(ConfigError, match=f"^rates are tried on different tasks, at least one, found {found}$"):
        try_rates(model, [small_task()] * times, GRID)


def test_a_process_group_is_refused(model, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(
        ConfigError, match="^rates are tried in one process, found a group of 2; start it without torchrun$"
    ):
        try_rates(model, [small_task()], GRID)


def test_a_model_that_may_have_seen_the_rows_is_refused(tmp_path):
    checkpoint.save(*small_start(id2label={0: "unacceptable", 1: "acceptable"}), tmp_path / "tuned")
    with pytest.raises(
        ModelError, match="has a trained classifier, which may have seen the rows to hold out; give the"
    ):
        try_rates(tmp_path / "tuned", [small_task()], GRID, settings=QUICK)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ModelError, match="is a run, whose model has seen the rows to hold out; give the pretrained"):
        try_rates(tmp_path, [small_task()], GRID, settings=QUICK)


# --- the choice -------------------------------------------------------------------------------------------------------


def record_of(scores, *, majority=0.5, one_class=()):
    """A record of made-up scores, by task and rate a list over the seeds."""
    trials = [
        Trial(task, seed, rate, score, 0.7, (task, seed, rate) in one_class, majority, 10, 1.0)
        for task, rates in scores.items()
        for rate, column in rates.items()
        for seed, score in enumerate(column)
    ]
    first = next(iter(scores.values()))
    return Record(
        command=None,
        conditions=Conditions("tiny", "0", 0.2, "cpu", "float32", 1),
        asked_tasks=tuple(scores),
        asked_rates=tuple(first),
        asked_seeds=tuple(range(len(next(iter(first.values()))))),
        tasks=tuple(TaskRecord(name, "accuracy", "0", 80, 20, 3, 32, 128) for name in scores),
        trials=tuple(trials),
        provenance={},
    )


def test_the_best_rate_has_the_highest_mean_over_tasks():
    choice = choose_rate(
        record_of(
            {
                "rte": {1e-5: [0.6, 0.6], 2e-5: [0.6, 0.7], 5e-5: [0.5, 0.9]},
                "mrpc": {1e-5: [0.7, 0.7], 2e-5: [0.8, 0.8], 5e-5: [0.6, 0.6]},
            }
        )
    )
    assert (choice.best, choice.notes) == (2e-5, ())
    assert choice.means == pytest.approx((0.65, 0.725, 0.65))
    assert [task.best for task in choice.tasks] == [5e-5, 2e-5]
    assert choice.tasks[0].deviations == pytest.approx((0.0, 0.05 * 2**0.5, 0.2 * 2**0.5))


def test_a_tie_goes_to_the_smaller_rate_whatever_the_order_of_the_seeds():
    # Added up from left to right the two differ in their last bit.
    choice = choose_rate(record_of({"rte": {5e-5: [0.1, 0.2, 0.3], 2e-5: [0.3, 0.2, 0.1], 1e-5: [0.0, 0.0, 0.0]}}))
    assert 0.1 + 0.2 + 0.3 != 0.3 + 0.2 + 0.1
    assert choice.best == 2e-5


def test_a_rate_that_learned_nothing_is_named():
    record = record_of(
        {"rte": {1e-5: [0.5, 0.5], 2e-5: [0.5, 0.6], 5e-5: [0.4, 0.6]}},
        one_class={("rte", 0, 1e-5), ("rte", 1, 1e-5)},
    )
    assert choose_rate(record).notes == (
        "rte at 1e-05: every held-out row got the same answer with 2 of 2 seeds",
        "rte at 5e-05: 50.00 is no better than always answering the same (50.00)",
    )


@pytest.mark.parametrize(
    ("scores", "note"),
    [
        ({1e-5: [0.9], 2e-5: [0.8]}, "the best rate is the smallest tried; add smaller ones than 1e-05"),
        ({1e-5: [0.8], 2e-5: [0.9]}, "the best rate is the largest tried; add larger ones than 2e-05"),
        ({1e-5: [0.8]}, "1e-05 was the only rate tried; add smaller and larger ones"),
    ],
)
def test_a_best_rate_at_an_end_is_named(scores, note):
    choice = choose_rate(record_of({"rte": scores}))
    assert choice.notes == (note,)
    assert choice.tasks[0].deviations is None


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command(run_auber, model, tmp_path):
    out = tmp_path / "rates.json"
    small = [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]
    call = ["rates", "--model", model, "--task", "agreement", "--rates", "1e-3,1e-4", "--seeds", "0,1", *small]
    code, printed, err = run_auber(*call, "--set", "first.batch_size=200", "--held-out", "0.5", "--out", out)
    assert code == 0
    assert "agreement seed 1 rate 0.001: " in err
    record = read_record(out)
    assert record.command.startswith("auber rates --model tiny --task agreement")
    choice = choose_rate(record)
    lines = printed.splitlines()
    assert lines[0] == "tiny: points on the held-out rows, mean and standard deviation over 2 seeds"
    assert lines[1].split() == ["task", "metric", "held", "out", "majority", "0.0001", "0.001"]
    assert lines[2].split()[:5] == ["agreement", "accuracy", "300", "50.00", f"{100 * choice.tasks[0].means[0]:.2f}"]
    assert f"best rate: {choice.best:g} ({RULE})" in lines
    assert [line for line in lines if line.startswith("careful: ")] == [f"careful: {note}" for note in choice.notes]
    assert lines[-1] == f"result: {out}"
    code, printed, err = run_auber(
        *call, "--set", "first.batch_size=200", "--held-out", "0.5", "--out", out, "--json", "--quiet"
    )
    assert (code, err) == (0, "")
    assert json.loads(printed)["choice"]["best"] == choice.best
    assert json.loads(printed)["trials"] == json.loads(out.read_text())["trials"]


def test_tasks_are_summed_up_in_a_last_row(capsys):
    from auber.cli.rates import show

    scores = {1e-5: [0.6], 2e-5: [0.7], 5e-5: [0.6]}
    record = record_of({"rte": scores, "mrpc": scores})
    show(record, choose_rate(record), None)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "tiny: points on the held-out rows, seed 0"
    assert lines[4].split() == ["mean", "60.00", "70.00", "*", "60.00"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "rtte"], "auber: Unknown task 'rtte'. Did you mean 'rte'?"),
        (["--task", "agreement", "--rates", "x"], "auber: --rates must be numbers with commas between"),
        (["--task", "agreement", "--set", "seed=1"], "auber: settings: trying rates reads"),
        (["--task", "agreement", "--preset", "papr"], "auber: Unknown preset 'papr'. Did you mean 'paper'?"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(run_auber, model, arguments, message):
    code, out, err = run_auber("rates", "--model", model, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(message)
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("out", "advice"),
    [
        (["--out", "x.json"], "the same command goes on from here"),
        ([], "nothing is kept; --out FILE keeps what is done"),
    ],
)
def test_a_stop_by_hand_says_what_is_kept(run_auber, model, monkeypatch, out, advice):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("auber.rates.tunings.try_rates", stop)
    code, _, err = run_auber("rates", "--model", model, "--task", "agreement", *out)
    assert (code, err) == (130, f"auber: stopped; {advice}\n")
