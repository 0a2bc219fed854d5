from __future__ import annotations

import json
import os

import pytest

from auber.errors import ConfigError
from auber.study import Place, Request, State, StudyFolder, Work, run_study
from auber.study.engines import Losses, Watch, run_processes
from auber.study.plan import Block
from tests.study.tiny import QUICK, Notes, WorkerKiller, results_of, tiny_study

BLOCK = Block("agreement", "seen", 0)


def workers_of(study, folder, run="start"):
    """The process each block's run was begun in."""
    events = [(folder.run_path(block, run) / "events.jsonl").read_text().splitlines() for block in study.blocks()]
    return [json.loads(lines[0])["process"] for lines in events]


def test_a_process_does_one_block_after_another(model, unbroken, tmp_path):
    _, whole, _ = unbroken
    study, folder = tiny_study(model, methods=["original"], seeds=[0, 1]), StudyFolder(tmp_path / "study")
    notes = Notes()
    run_study(study, folder, notes, place=Place("processes"))
    assert [(outcome.block.seed, outcome.run, outcome.state) for outcome in notes.ended] == [
        (seed, run, State.COMPLETE) for seed in (0, 1) for run in ("start", "original")
    ]
    assert results_of(study, folder.path) == results_of(study, whole)
    first, second = workers_of(study, folder)
    assert first == second, "its start is paid for once"
    assert first != os.getpid()


@pytest.mark.slow
def test_a_process_in_which_a_run_failed_does_no_further_block(model, tmp_path):
    study, folder = tiny_study(model, methods=["original"], seeds=[0, 1]), StudyFolder(tmp_path / "study")
    folder.open(study)
    foreign = folder.run_path(BLOCK, "original") / "notes.txt"
    foreign.parent.mkdir(parents=True)
    foreign.touch()
    outcomes = run_study(study, folder, Notes(), place=Place("processes"))
    assert [str(outcome.state) for outcome in outcomes] == ["complete", "failed", "complete", "complete"]
    first, second = workers_of(study, folder)
    assert first != second


def test_a_block_that_another_process_is_in_is_left_to_it(model, tmp_path):
    study, folder, notes = tiny_study(model, methods=["original"], seeds=[0, 1]), StudyFolder(tmp_path), Notes()
    work, other = (Work(study, tmp_path, block, ("start",), None) for block in study.blocks())
    with folder.claim(work.block):
        run_processes([work, other], 1, notes)
    assert notes.said == [f"{work.block}: another process is at work in it; left to it"]
    assert [outcome.block for outcome in notes.ended] == [other.block]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_several_processes_and_one_killed_give_the_results_of_one(unbroken, tmp_path):
    study, whole, _ = unbroken
    folder, notes = StudyFolder(tmp_path / "study"), Notes()
    with WorkerKiller(folder, BLOCK) as killer:
        outcomes = run_study(study, folder, notes, place=Place("processes", Request(jobs=2)))
    assert killer.killed == 1
    assert {outcome.state for outcome in outcomes} == {State.COMPLETE}
    assert results_of(study, folder.path) == results_of(study, whole)
    assert {(outcome.block.seed, outcome.run) for outcome in notes.ended} == {
        (block.seed, run.name) for block in study.blocks() for run in study.runs(block)
    }


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_that_loses_its_process_again_and_again_has_failed_and_the_others_go_on(model, tmp_path):
    study, folder = tiny_study(model), StudyFolder(tmp_path / "study")
    with WorkerKiller(folder, BLOCK, times=2):
        run_study(study, folder, Notes(), place=Place("processes", Request(jobs=1)))
    assert folder.failure(BLOCK, "auber").error == "its process was lost (exit code -9), 2 times"
    assert {run.name: str(folder.state(BLOCK, run)) for run in study.runs(BLOCK)} == {
        "start": "complete",
        "auber": "failed",
        "random-0": "skipped",
        "original": "complete",
        "original+tuning": "skipped",
    }


def test_losses_are_counted_by_run(tmp_path):
    study, folder = tiny_study(), StudyFolder(tmp_path)
    work = Work(study, tmp_path, BLOCK, ("start", "auber"), None)
    notes, losses = Notes(), Losses(retries=1)
    watch = Watch([work], notes)
    assert losses.take_up_again(work, "lost")
    assert folder.state(BLOCK, "start") is State.MISSING
    assert losses.take_up_again(work, "lost")
    assert folder.failure(BLOCK, "start").error == "lost, 2 times"
    watch.look()
    watch.look()
    assert [(outcome.run, outcome.error) for outcome in notes.ended] == [("start", "lost, 2 times")]
    folder.record_skip(BLOCK, "auber", "start")
    assert not losses.take_up_again(work, "lost"), "nothing is left to do"


@pytest.mark.parametrize("engine", ["processes", "ray"])
def test_threads_must_be_pinned(model, tmp_path, engine):
    study = tiny_study(model, settings={**QUICK, "threads": 0})
    message = f"engine {engine}: threads must be set, so that .*, found 0 .*; write threads = 1 under \\[settings\\]"
    with pytest.raises(ConfigError, match=message):
        run_study(study, StudyFolder(tmp_path / "study"), Notes(), place=Place(engine))


@pytest.mark.parametrize(
    ("engine", "jobs", "message"),
    [
        ("rya", 1, "Unknown engine 'rya'. Did you mean 'ray'. Known: local, processes, ray"),
        ("processes", 0, "--jobs must be a whole number from 1, found 0"),
        ("local", 2, "engine local does one run at a time, found --jobs 2; add --engine processes or ray"),
    ],
)
def test_a_place_that_cannot_be(engine, jobs, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        Place(engine, Request(jobs=jobs))
