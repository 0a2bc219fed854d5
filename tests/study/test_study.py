"""A study in this process: what it leaves, what it skips, what it does when a run fails or the process is killed."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import time
from pathlib import Path

import pytest
import torch

from auber import api
from auber.data.generated import make_agreement
from auber.errors import ConfigError, ModelError, RunError, TaskError
from auber.models import checkpoint
from auber.run import files as run_files
from auber.scoring import LayerScorer
from auber.study import State, StudyFolder, run_study, select_runs
from auber.study import block as block_work
from auber.study.plan import Block
from tests.splits import read_splits
from tests.study.tiny import QUICK, Notes, results_of, tiny_study

BLOCK = Block("agreement", "seen", 0)

pytestmark = pytest.mark.usefixtures("young_garbage")  # a study collects after each run


def states(study, folder, block=BLOCK) -> dict[str, str]:
    return {run.name: str(folder.state(block, run)) for run in study.runs(block)}


def test_every_run_is_an_ordinary_run_from_one_start(unbroken):
    study, path, notes = unbroken
    for block in study.blocks():
        results = {
            run.name: run_files.read_result(path / block.path / run.name)
            for run in study.runs(block)
        }
        assert {result["start"] for result in results.values()} == {results["start"]["start"]}
        assert {result["seed"] for result in results.values()} == {block.seed}
        assert results["start"]["kind"] == "finetune"
        assert results["auber"]["heads"]["removed"] == results["random-0"]["heads"]["removed"] > 0
        for name in ("random-0", "original+tuning"):
            assert results[name]["tuned_layers"] == results["auber"]["tuned_layers"]
        assert results["auber"]["command"] == "auber study tiny.toml"
        assert results["auber"]["model"] == "tiny"
    assert [(outcome.block.seed, outcome.run) for outcome in notes.ended] == [
        (seed, name)
        for seed in (0, 1)
        for name in ("start", "auber", "random-0", "original", "original+tuning")
    ]
    assert all(outcome.state is State.COMPLETE for outcome in notes.ended)


def test_what_is_complete_is_skipped(unbroken, monkeypatch):
    study, path, _ = unbroken
    monkeypatch.setattr(api, "prune", None)
    monkeypatch.setattr(api, "finetune", None)
    notes = Notes()
    outcomes = run_study(study, StudyFolder(path), notes)
    assert [outcome.state for outcome in outcomes] == [State.COMPLETE] * 10
    assert notes.ended == []


def test_a_failed_start_leaves_the_rest_out_and_is_tried_again(
    model, unbroken, tmp_path, monkeypatch
):
    _, whole, _ = unbroken
    study, folder = tiny_study(model), StudyFolder(tmp_path / "study")
    with monkeypatch.context() as broken:
        broken.setattr(api, "finetune", None)
        outcomes = run_study(study, folder, Notes())
    assert [outcome.state for outcome in outcomes] == [State.FAILED] + [State.SKIPPED] * 4
    assert outcomes[0].error == "TypeError: 'NoneType' object is not callable"
    assert outcomes[1].error == "left out: 'start' has no result"

    outcomes = run_study(study, folder, Notes())
    assert {outcome.state for outcome in outcomes} == {State.COMPLETE}
    assert not list(folder.path.rglob("*.failed.*"))
    assert results_of(study, folder.path) == results_of(study, whole)


def test_a_failed_run_takes_only_those_with_it_that_need_it(model, tmp_path, monkeypatch):
    prune = api.prune

    def fail_once(*arguments, method, **options):
        if method == "auber":
            raise MemoryError("no room")
        return prune(*arguments, method=method, **options)

    monkeypatch.setattr(api, "prune", fail_once)
    study, folder = tiny_study(model), StudyFolder(tmp_path / "study")
    run_study(study, folder, Notes())
    expected = {
        "start": "complete",
        "auber": "failed",
        "random-0": "skipped",
        "original": "complete",
        "original+tuning": "skipped",
    }
    assert states(study, folder) == expected
    assert folder.failure(BLOCK, "auber").error == "MemoryError: no room"
    assert "fail_once" in (folder.block_path(BLOCK) / "auber.failed.txt").read_text()


def test_under_heldout_the_controls_are_tuned_on_the_reward_rows_from_the_start(model, tmp_path):
    study, folder = (
        tiny_study(model, protocols=["heldout"], methods=["original"]),
        StudyFolder(tmp_path / "study"),
    )
    run_study(study, folder, Notes())
    (block,) = study.blocks()
    splits = read_splits(folder.run_path(block, "original"))
    assert len(splits.original_first) > len(splits.first)
    steps = {
        name: run_files.read_result(folder.run_path(block, name))["cost"]["tuning_steps"]
        for name in ("start", "original")
    }
    assert steps == {
        "start": -(-len(splits.first) // 100),
        "original": -(-len(splits.original_first) // 100),
    }
    results = [
        run_files.read_result(folder.run_path(block, name))["start"]
        for name in ("start", "original")
    ]
    assert results[0] != results[1]


def test_under_crossfit_scouts_are_made_of_what_the_start_was_tuned_from(model, tmp_path):
    settings = {**QUICK, "reward.head": 1.0, "agent.choose": "best"}
    study, folder = (
        tiny_study(model, protocols=["crossfit"], settings=settings),
        StudyFolder(tmp_path / "study"),
    )
    outcomes = run_study(study, folder, Notes())
    assert {outcome.state for outcome in outcomes} == {State.COMPLETE}
    (block,) = study.blocks()
    results = {
        run.name: run_files.read_result(folder.run_path(block, run.name))
        for run in study.runs(block)
    }
    assert {result["start"] for result in results.values()} == {results["start"]["start"]}
    steps = {name: result["cost"]["tuning_steps"] for name, result in results.items()}
    first, layers = results["start"]["cost"]["tuning_steps"], results["auber"]["tuned_layers"]
    assert layers
    # What came out of auber had its first tuning in the run itself, that of all others is the start's.
    assert steps["auber"] - first == steps["random-0"] == steps["original+tuning"] > 0
    assert results["auber"]["cost"]["scout_steps"] > 3 * -(-400 // 100), (
        "and all tunings after the first"
    )
    origin = run_files.read_json(folder.run_path(block, "auber") / "run.json")["origin"]
    assert origin == run_files.read_json(folder.run_path(block, "start") / "run.json")["weights"]


def test_weights_can_go_and_a_start_is_made_again_for_a_method_that_comes_later(
    model, unbroken, tmp_path
):
    _, whole, _ = unbroken
    folder = StudyFolder(tmp_path / "study")
    few = tiny_study(model, methods=["auber"], keep_weights=False)
    run_study(few, folder, Notes())
    assert not list(folder.path.rglob("*.safetensors"))

    more = tiny_study(model, keep_weights=False)
    outcomes = run_study(more, folder, Notes())
    assert {outcome.state for outcome in outcomes} == {State.COMPLETE}
    assert not list(folder.path.rglob("*.safetensors"))
    found, expected = results_of(more, folder.path), results_of(more, whole)
    assert found == expected


def test_a_start_made_again_with_other_bits_is_not_taken_for_the_first(
    model, tmp_path, monkeypatch
):
    """What a GPU can do; a start of another rate stands for it here."""
    folder = StudyFolder(tmp_path / "study")
    run_study(tiny_study(model, methods=["auber"], keep_weights=False), folder, Notes())
    finetune = api.finetune

    def other_bits(*arguments, config, **options):
        return finetune(*arguments, config=config.replace({"first.learning_rate": 2e-3}), **options)

    monkeypatch.setattr(api, "finetune", other_bits)
    methods = ["auber", "auber-l2", "random", "original+tuning"]
    study = tiny_study(model, methods=methods, keep_weights=False)
    run_study(study, folder, Notes())
    later = ("auber-l2", "random-0", "original+tuning")
    assert states(study, folder) == {
        "start": "complete",
        "auber": "complete",
        **dict.fromkeys(later, "failed"),
    }
    for name in later:
        assert folder.failure(BLOCK, name).error == (
            f"RunError: {folder.block_path(BLOCK)}: the start was tuned again, its weights being gone, and is not to the bit "
            "what auber began with, so the runs cannot be compared; delete this folder and do the block anew"
        )


def test_some_methods_first_and_the_rest_later(model, unbroken, tmp_path):
    _, whole, _ = unbroken
    study, folder = tiny_study(model, keep_weights=False), StudyFolder(tmp_path / "study")
    outcomes = run_study(study, folder, Notes(), selection=select_runs(study, ["method=random"]))
    assert [outcome.run for outcome in outcomes] == ["start", "auber", "random-0"]
    assert states(study, folder)["original"] == "missing"
    assert folder.has_weights(BLOCK, "start"), "the study is not over"
    assert not folder.has_weights(BLOCK, "auber")

    notes = Notes()
    run_study(study, folder, notes)
    assert [outcome.run for outcome in notes.ended] == ["original", "original+tuning"]
    assert not list(folder.path.rglob("*.safetensors"))
    assert results_of(study, folder.path) == results_of(study, whole)


def test_a_failure_that_is_not_tried_again_stays(model, tmp_path):
    study, folder = (
        tiny_study(model, methods=["original", "greedy"]),
        StudyFolder(tmp_path / "study"),
    )
    folder.open(study)
    folder.record_failure(BLOCK, "greedy", "no room")
    run_study(study, folder, Notes(), selection=select_runs(study, ["method=original"]))
    assert states(study, folder) == {
        "start": "complete",
        "original": "complete",
        "greedy": "failed",
    }


def test_random_pruning_is_drawn_several_times(model, tmp_path):
    study, folder = (
        tiny_study(model, methods=["auber", "random"], draws=2),
        StudyFolder(tmp_path / "study"),
    )
    run_study(study, folder, Notes())
    results = [run_files.read_result(folder.run_path(BLOCK, f"random-{draw}")) for draw in (0, 1)]
    assert results[0]["heads"] == results[1]["heads"]
    assert results[0]["plan"] != results[1]["plan"]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"model": "./nothing"}, ModelError, "'./nothing': the model's size cannot be read"),
        ({"model": "tiny", "tasks": ["rte"], "data": "nothing"}, TaskError, "nothing"),
    ],
)
def test_what_cannot_be_read_is_found_before_anything_is_made(
    model, tmp_path, monkeypatch, changes, error, message
):
    monkeypatch.chdir(model.parent)
    with pytest.raises(error, match=message):
        run_study(tiny_study(**changes), StudyFolder(tmp_path / "study"), Notes())
    assert not (tmp_path / "study").exists()


def test_another_study_in_the_folder(unbroken):
    _, path, _ = unbroken
    with pytest.raises(
        RunError, match="holds another study: model was 'tiny' and is now 'agreement'"
    ):
        run_study(tiny_study("agreement"), StudyFolder(path), Notes())


def test_a_block_another_process_is_in_is_left_to_it(model, tmp_path):
    study, folder, notes = tiny_study(model), StudyFolder(tmp_path / "study"), Notes()
    with folder.claim(BLOCK):
        (folder.path / "agreement").rename(tmp_path / "claimed")
        folder.open(study)
        (tmp_path / "claimed").rename(folder.path / "agreement")
        outcomes = run_study(study, folder, notes)
    (line,) = notes.said
    who = rf"process {os.getpid()} on {re.escape(platform.node())} \(since \d+-\d\d-\d\d \d\d:\d\d:\d\d[^)]*\)"
    assert re.fullmatch(rf"agreement seen seed 0: {who} is at work in it; left to it", line)
    assert {outcome.state for outcome in outcomes} == {State.MISSING}


def test_the_claim_of_a_killed_process_is_taken_over_and_that_of_another_machine_is_respected(
    model, tmp_path
):
    study, folder, notes = (
        tiny_study(model, methods=["original"]),
        StudyFolder(tmp_path / "study"),
        Notes(),
    )
    folder.open(study)
    with folder.claim(BLOCK):
        claim = folder.block_path(BLOCK) / ".claim"
        content = json.loads(claim.read_text())
    claim.write_text(json.dumps({**content, "process": 77, "host": "lost-node"}))
    assert {outcome.state for outcome in run_study(study, folder, notes)} == {State.MISSING}
    (line,) = notes.said
    assert line.startswith("agreement seen seed 0: process 77 on lost-node (since ")
    assert line.endswith(f": make sure that it has, delete {claim}, and start again; left to it")
    claim.write_text(
        json.dumps({**content, "process": 2**31 - 1})
    )  # as a killed process of this machine leaves it
    assert {outcome.state for outcome in run_study(study, folder, notes)} == {State.COMPLETE}
    assert not claim.exists()


def test_a_layer_the_model_lacks_is_said_before_anything_is_made(model, tmp_path):
    study = tiny_study(model, settings={**QUICK, "search.layers": "0,7"})
    message = r"^task agreement: search.layers must name layers of the model, which has 3 \(0 to 2\), found 7; leave out"
    with pytest.raises(ConfigError, match=message):
        run_study(study, StudyFolder(tmp_path / "study"), Notes())
    assert not (tmp_path / "study").exists()


def test_runs_that_make_the_embedded_model_at_once_share_it(tmp_path, monkeypatch):
    study, folder = tiny_study(), StudyFolder(tmp_path)
    place = folder.block_path(BLOCK)
    place.mkdir(parents=True)
    task, save = make_agreement(0), checkpoint.save

    def save_late(model, tokenizer, out):
        save(model, tokenizer, out)
        if not (place / "agreement").exists():
            save(model, tokenizer, place / "agreement")  # the other run was quicker
            (place / "agreement" / "first").touch()

    monkeypatch.setattr(checkpoint, "save", save_late)
    made = block_work._model(study, folder, BLOCK, task)
    assert (made / "first").exists(), "what the other run may be reading is not taken away"
    assert [path.name for path in place.iterdir()] == ["agreement"]


def study_slowly(model: str, folder: str) -> None:
    """What the killed process runs: slowed down where it computes, so that it can be killed in the middle."""
    torch.set_num_threads(1)
    score_many = LayerScorer.score_many
    LayerScorer.score_many = lambda *arguments: (time.sleep(0.2), score_many(*arguments))[1]
    run_study(tiny_study(model), StudyFolder(Path(folder)), Notes())


def test_a_killed_study_goes_on_to_the_same_results(model, unbroken, starter, tmp_path):
    _, whole, _ = unbroken
    study, folder = tiny_study(model), StudyFolder(tmp_path / "study")
    process = starter.start("tests.study.test_study:study_slowly", model, folder.path)
    ledger = folder.run_path(BLOCK, "auber") / "scores.jsonl"
    deadline = time.monotonic() + 120
    while not ledger.is_file() or ledger.read_text().count("\n") < 2:
        assert not process.has_ended, "the study ended before the moment came"
        assert time.monotonic() < deadline, "the moment never came"
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert states(study, folder)["start"] == "complete"
    assert states(study, folder)["auber"] == "unfinished"

    outcomes = run_study(study, folder, Notes())
    assert {outcome.state for outcome in outcomes} == {State.COMPLETE}
    assert results_of(study, folder.path) == results_of(study, whole)
