from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from unittest.mock import Mock, call

import pytest
import torch

import auber
from auber.errors import ConfigError, RunError
from auber.run.folder import Run
from auber.run.trackers import TRACKERS, check_trackers, open_tracker
from tests.small import small_config, small_start, small_task


def prune(out, **changes):
    model, tokenizer = small_start()
    return auber.prune(
        model,
        tokenizer,
        task=small_task(),
        config=small_config(first__when="always"),
        out=out,
        **changes,
    )


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """An untracked run: its folder and its result."""
    folder = tmp_path_factory.mktemp("plain") / "run"
    return folder, prune(folder)


def same(first, second):
    """Whether two outcomes are the same to the last bit."""
    state = second.model.state_dict()
    keys = ("dev", "train", "plan", "tuned_layers", "start", "heads")
    return all(first.result[key] == second.result[key] for key in keys) and all(
        torch.equal(tensor, state[name]) for name, tensor in first.model.state_dict().items()
    )


def numbers_of(folder: Path) -> dict[tuple[str, int], float]:
    """Return the logged numbers of a run, (name, step) -> value, without times."""
    lines = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
    return {
        (name, line["step"]): value
        for line in lines
        if line["event"] == "numbers"
        for name, value in line["values"].items()
        if "second" not in name
    }


def test_a_run_logs_its_search_its_tunings_and_its_result(plain):
    folder, outcome = plain
    numbers = numbers_of(folder)
    names = {name for name, _ in numbers}
    quantities = ("best_score", "return", "epsilon", "rewards_asked", "rewards_computed", "loss")
    assert {f"layer-01/search/{quantity}" for quantity in quantities} <= names
    assert {step for name, step in numbers if name == "layer-01/search/return"} == set(
        range(1, 7)
    ), "every episode"
    assert {"first/tuning/loss", "last/tuning/loss", "last/tuning/watched_score"} <= names
    assert numbers["result/dev", 0] == outcome.result["dev"]["score"]
    assert numbers["result/heads_removed", 0] == outcome.plan.num_heads
    assert [numbers["layers/removed", layer] for layer in range(3)] == [
        len(outcome.plan.heads.get(n, ())) for n in range(3)
    ]
    computed = sum(numbers["layers/rewards_computed", layer] for layer in range(3))
    assert computed == outcome.result["cost"]["rewards_computed"]


def test_a_wrong_tracker_is_an_error_before_any_work(tmp_path, monkeypatch):
    message = r"^Unknown tracker 'tensorbord'. Did you mean 'tensorboard'\? Known: aim, "
    with pytest.raises(ConfigError, match=message):
        prune(tmp_path / "run", progress=["tensorbord"])
    monkeypatch.setattr("auber.run.trackers.importlib.util.find_spec", lambda name: None)
    message = (
        r"^tracker mlflow: the package mlflow must be installed, and is not; pip install "
        r"'auber\[track\]'$"
    )
    with pytest.raises(ConfigError, match=message):
        prune(tmp_path / "run", progress=["mlflow"])
    assert not (tmp_path / "run").exists()
    message = "tracker tensorboard: its files go into the run's folder, found none; give"
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=message):
        prune(None, progress=["tensorboard"])


def test_trackers_are_a_list_each_once():
    assert check_trackers(["tensorboard", "tensorboard"]) == ("tensorboard",)
    message = r"track must be a list of trackers, found 'mlflow'; write \['mlflow'\]"
    with pytest.raises(ConfigError, match=message):
        check_trackers("mlflow")


def test_tensorboard_gets_every_number_and_changes_none(plain, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    outcome = prune(tmp_path / "run", progress=["tensorboard"])
    assert same(outcome, plain[1])
    folder = tmp_path / "run" / "track" / "tensorboard"
    events = EventAccumulator(str(folder)).Reload()
    shown = {
        (tag, event.step): event.value
        for tag in events.Tags()["scalars"]
        for event in events.Scalars(tag)
        if "second" not in tag
    }
    logged = numbers_of(tmp_path / "run")
    assert shown == pytest.approx(logged)
    (settings,) = folder.glob("*/hparams.yml")
    assert "agent.episodes: 6" in settings.read_text()


def test_each_run_of_a_study_is_one_in_the_tracker(tmp_path):
    pytest.importorskip("tensorboard")
    from auber.study.folder import StudyFolder
    from auber.study.runner import run_study
    from tests.study.tiny import Notes, tiny_model_folder, tiny_study

    study = tiny_study(tiny_model_folder(tmp_path), methods=["original"])
    run_study(study, StudyFolder(tmp_path / "study"), Notes(), track=["tensorboard"])
    found = {path.parents[2].name for path in (tmp_path / "study").glob("**/tensorboard/events.*")}
    assert found == {"start", "original"}


@pytest.mark.slow  # MLflow takes seconds to make its tables
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_mlflow_keeps_its_store_in_the_run_and_goes_on_as_the_same(plain, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="needs pip install 'auber[track]'")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    finish = Run.finish_stage

    def stop_at_the_last(self, name, *arguments):
        if name == "last":
            raise KeyboardInterrupt
        return finish(self, name, *arguments)

    monkeypatch.setattr(Run, "finish_stage", stop_at_the_last)
    with pytest.raises(KeyboardInterrupt):
        prune(tmp_path / "run", progress=["mlflow"])
    monkeypatch.setattr(Run, "finish_stage", finish)
    assert same(prune(tmp_path / "run", progress=["mlflow"], resume=True), plain[1])

    assert [path.name for path in tmp_path.iterdir()] == ["run"], "nothing beside the run's folder"
    assert not mlflow.is_tracking_uri_set(), "the caller's MLflow is as it was"
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'run' / 'track' / 'mlflow.db'}")
    (experiment,) = client.search_experiments(filter_string="name = 'auber'")
    (found,) = client.search_runs([experiment.experiment_id])
    assert (found.info.run_name, found.info.status) == ("agreement seen seed 0 run", "FINISHED")
    assert found.data.params["agent.episodes"] == "6"
    history = client.get_metric_history(found.info.run_id, "layer-02/search/return")
    logged = numbers_of(tmp_path / "run")
    assert {point.step: point.value for point in history} == pytest.approx(
        {step: value for (name, step), value in logged.items() if name == "layer-02/search/return"}
    )


@pytest.fixture
def other(monkeypatch):
    """Stand for a tracker that accelerate knows by the name other."""
    from accelerate import tracking

    made = Mock(requires_logging_directory=True)
    monkeypatch.setitem(TRACKERS, "other", "other")
    monkeypatch.setattr("auber.run.trackers.importlib.util.find_spec", lambda name: name)
    monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, "other", made)
    monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, "another", made)
    return made


def test_other_trackers_get_one_count_of_steps_that_only_grows(other, tmp_path):
    with open_tracker("other", tmp_path / "track", "rte seen seed 0 run", {"seed": 0}) as listener:
        listener.record(5, {"layer-00/search/return": 1.0})
        listener.record(1, {"layer-01/search/return": 2.0})
    other.assert_called_once_with("auber rte seen seed 0 run", str(tmp_path / "track"))
    tracker = other.return_value
    tracker.store_init_configuration.assert_called_once_with({"seed": 0})
    assert tracker.log.call_args_list == [
        call({"layer-00/search/return": 1.0, "layer-00/search/step": 5}, step=0),
        call({"layer-01/search/return": 2.0, "layer-01/search/step": 1}, step=1),
    ]
    tracker.finish.assert_called_once_with()


def test_a_tracker_that_cannot_be_opened_is_an_error_before_any_work(other, tmp_path):
    tracker = other.return_value
    tracker.start.side_effect = OSError("no connection\nto the server")
    message = (
        r"^tracker other: cannot be opened \(OSError: no connection\); correct that or "
        r"leave out progress other, then continue with resume=True$"
    )
    with pytest.raises(RunError, match=message):
        prune(tmp_path / "run", progress=["other"])
    assert not list((tmp_path / "run" / "stages").iterdir())
    tracker.start.side_effect = None
    prune(tmp_path / "run", progress=["other"], resume=True)
    assert tracker.store_init_configuration.call_args.args[0]["agent.episodes"] == 6


def test_each_tracker_gets_the_settings_of_a_run_once(other, tmp_path):
    for name, times in (("other", 1), ("other", 1), ("another", 2)):
        with open_tracker(name, tmp_path / "track", "x", {"seed": 0}):
            stored = other.return_value.store_init_configuration
            assert stored.call_args_list == [call({"seed": 0})] * times


def test_a_tracker_that_fails_does_not_take_the_run_with_it(other, plain, tmp_path, caplog):
    tracker = other.return_value
    tracker.log.side_effect = [None, None, None, OSError("connection lost")]
    tracker.finish.side_effect = OSError("gone")
    with caplog.at_level(logging.WARNING):
        outcome = prune(tmp_path / "run", progress=["other"])
    assert same(outcome, plain[1])
    assert tracker.log.call_count == 4
    assert [
        record.getMessage() for record in caplog.records if "tracker other" in record.getMessage()
    ] == [
        "tracker other: dropped for the rest of this run (OSError: connection lost)",
        "tracker other: could not be closed (OSError: gone)",
    ]


def test_telemetry_is_off_unless_the_environment_enables_it(other, tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "true")
    with open_tracker("other", tmp_path / "track", "x", {}):
        assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
        assert os.environ["WANDB_ERROR_REPORTING"] == "true"
