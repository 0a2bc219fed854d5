from __future__ import annotations

import json
import os
import platform
import signal
from dataclasses import replace
from multiprocessing.connection import wait

import pytest

from auber.errors import ConfigError
from auber.study import Place, Request, State, StudyFolder, Work, run_study
from auber.study.engines import MOST_LOSSES, Losses, Watch, run_processes
from auber.study.plan import Block
from auber.system.locks import read_holder
from tests.study.tiny import QUICK, Notes, WorkerKiller, results_of, tiny_study

BLOCK = Block("agreement", "seen", 0)


def workers_of(study, folder, run="start"):
    """The process each block's run was begun in."""
    events = [
        (folder.run_path(block, run) / "events.jsonl").read_text().splitlines()
        for block in study.blocks()
    ]
    return [json.loads(lines[0])["process"] for lines in events]


def test_a_process_does_one_block_after_another(model, unbroken, tmp_path):
    _, whole, _ = unbroken
    study, folder = (
        tiny_study(model, methods=["original"], seeds=[0, 1]),
        StudyFolder(tmp_path / "study"),
    )
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
    study, folder = (
        tiny_study(model, methods=["original"], seeds=[0, 1]),
        StudyFolder(tmp_path / "study"),
    )
    folder.open(study)
    foreign = folder.run_path(BLOCK, "original") / "notes.txt"
    foreign.parent.mkdir(parents=True)
    foreign.touch()
    outcomes = run_study(study, folder, Notes(), place=Place("processes"))
    assert [str(outcome.state) for outcome in outcomes] == [
        "complete",
        "failed",
        "complete",
        "complete",
    ]
    first, second = workers_of(study, folder)
    assert first != second


def test_a_block_that_another_process_is_in_is_left_to_it(model, tmp_path):
    study, folder, notes = (
        tiny_study(model, methods=["original"], seeds=[0, 1]),
        StudyFolder(tmp_path),
        Notes(),
    )
    work, other = (Work(study, tmp_path, block, ("start",), None) for block in study.blocks())
    with folder.claim(work.block):
        run_processes([work, other], 1, notes)
    (line,) = notes.said
    assert line.startswith(f"{work.block}: process {os.getpid()} on {platform.node()} (since ")
    assert line.endswith(") is at work in it; left to it")
    assert [outcome.block for outcome in notes.ended] == [other.block]


@pytest.mark.parametrize("patience", [60.0, 0.0])
def test_a_study_that_is_stopped_gives_back_what_its_processes_hold(
    model, tmp_path, monkeypatch, patience
):
    endless = {**QUICK, "agent.episodes": 100_000}
    study, folder = (
        tiny_study(model, methods=["auber"], settings=endless),
        StudyFolder(tmp_path / "study"),
    )
    lock = folder.run_path(BLOCK, "auber") / ".lock"

    def stop_in_the_search(sources, timeout):
        if lock.exists():
            raise KeyboardInterrupt
        return wait(sources, timeout)

    monkeypatch.setattr("auber.study.engines.wait", stop_in_the_search)
    monkeypatch.setattr("auber.study.engines._LEAVE_WITHIN", patience)
    with pytest.raises(KeyboardInterrupt):
        run_study(study, folder, Notes(), place=Place("processes"))
    assert not (folder.block_path(BLOCK) / ".claim").exists(), (
        "another machine could not tell that it is gone"
    )
    if patience:
        assert not lock.exists()
        assert not folder.end_attempt(BLOCK, "auber"), "the process signed off"
        assert folder.failure(BLOCK, "auber") is None


def test_a_process_that_is_killed_leaves_no_claim_to_other_machines(model, tmp_path, monkeypatch):
    study, folder = tiny_study(model, methods=["original"]), StudyFolder(tmp_path / "study")
    folder.open(study)
    work, claim = (
        Work(study, folder.path, BLOCK, ("start",), None),
        folder.block_path(BLOCK) / ".claim",
    )

    def kill_in_the_block(sources, timeout):
        holder = read_holder(claim.parent, claim.name)
        if holder is not None:
            os.kill(holder.process, signal.SIGKILL)
        return wait(sources, timeout)

    monkeypatch.setattr("auber.study.engines.wait", kill_in_the_block)
    run_processes([work], 1, Notes(), retries=0)
    assert folder.state(BLOCK, "start") is State.FAILED
    assert not claim.exists()


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
def test_a_run_that_loses_its_process_again_and_again_has_failed_and_the_others_go_on(
    model, tmp_path
):
    study, folder = tiny_study(model), StudyFolder(tmp_path / "study")
    with WorkerKiller(
        folder, BLOCK, times=9
    ):  # that it gets a little further in between is possible
        run_study(study, folder, Notes(), place=Place("processes", Request(jobs=1, retries=1)))
    assert folder.failure(BLOCK, "auber").error == (
        "its process was lost (exit code -9), 2 times without getting further: it may be the run that ends its worker, by the "
        "memory it takes for one"
    )
    assert {run.name: str(folder.state(BLOCK, run)) for run in study.runs(BLOCK)} == {
        "start": "complete",
        "auber": "failed",
        "random-0": "skipped",
        "original": "complete",
        "original+tuning": "skipped",
    }


class Lost:
    """A study of which workers are lost, one after the other."""

    def __init__(self, path, names=("start", "auber"), retries=1):
        self.folder, self.work = StudyFolder(path), Work(tiny_study(), path, BLOCK, names, None)
        self.losses = Losses(retries)
        self.folder.block_path(BLOCK).mkdir(parents=True)

    def lose(self, run=None):
        """A worker is killed, in a run or before it has begun one; whether anything is left to do."""
        if run is not None:
            (self.folder.block_path(BLOCK) / f".{run}.begun").touch()
        return self.losses.take_up_again(self.work, "lost")

    def advance(self, run, stage):
        stages = self.folder.run_path(BLOCK, run) / "stages"
        stages.mkdir(parents=True, exist_ok=True)
        (stages / f"{stage}.json").touch()

    def error(self, run):
        failure = self.folder.failure(BLOCK, run)
        return failure and failure.error


FURTHER = "times without getting further: it may be the run that ends its worker, by the memory it takes for one"


def test_a_run_that_is_lost_at_the_same_place_has_failed(tmp_path):
    lost = Lost(tmp_path)
    notes = Notes()
    watch = Watch([lost.work], notes)
    assert lost.lose("start")
    assert (lost.error("start"), watch.look()) == (None, 0)
    assert lost.lose("start"), "the other run is open"
    assert lost.error("start") == f"lost, 2 {FURTHER}"
    assert (watch.look(), watch.look()) == (1, 0)
    assert [(outcome.run, outcome.error) for outcome in notes.ended] == [
        ("start", f"lost, 2 {FURTHER}")
    ]
    lost.folder.record_skip(BLOCK, "auber", "start")
    assert not lost.lose(), "nothing is left to do"


def test_a_run_that_gets_further_is_taken_up_however_often_it_is_lost(tmp_path):
    lost = Lost(tmp_path, names=("auber",))
    for stage in range(20):
        assert lost.lose("auber")
        lost.advance("auber", f"layer-{stage:02}")
    ledger = lost.folder.run_path(BLOCK, "auber") / "scores.jsonl"
    for _ in range(20):
        assert lost.lose("auber")
        with ledger.open("a") as file:
            file.write("{}\n")
    assert lost.lose("auber")
    assert not lost.lose("auber"), "it was the only one"
    assert lost.error("auber") == f"lost, 2 {FURTHER}"


def test_losses_of_other_runs_in_between_excuse_a_run_up_to_a_bound(tmp_path):
    """Something else ends the workers then, or two runs that both do: which of the two cannot be told."""
    lost = Lost(tmp_path, names=("start",))
    other = replace(lost.work, names=("original",))
    for _ in range(MOST_LOSSES - 1):
        assert lost.lose("start")
        (lost.folder.block_path(BLOCK) / ".original.begun").touch()
        assert lost.losses.take_up_again(other, "lost")
    assert not lost.lose("start")
    assert lost.error("start") == f"lost, {MOST_LOSSES} {FURTHER}"


def test_only_losses_in_a_row_are_held_against_a_run(tmp_path):
    lost = Lost(tmp_path, names=("start",))
    other = replace(lost.work, names=("original",))
    assert lost.lose("start")
    (lost.folder.block_path(BLOCK) / ".original.begun").touch()
    assert lost.losses.take_up_again(other, "lost")
    assert lost.lose("start"), "the other's was between"
    assert not lost.lose("start"), "none was between"
    assert lost.error("start") == f"lost, 3 {FURTHER}"


def test_a_worker_lost_before_it_began_says_nothing_about_the_run_while_others_get_on(tmp_path):
    lost = Lost(tmp_path, names=("auber",))
    for _ in range(20):
        assert lost.lose()
        lost.losses.hear_of_progress()
    assert lost.lose("auber"), "that it was lost in the run itself is counted by itself"
    assert lost.lose()
    assert not lost.lose()
    assert (
        lost.error("auber")
        == "lost, 2 times before the run was begun: no worker lives long enough here"
    )


def test_a_run_that_is_worked_on_shows(tmp_path):
    folder = StudyFolder(tmp_path)
    folder.block_path(BLOCK).mkdir(parents=True)
    with folder.attempt(BLOCK, "auber"):
        assert (folder.block_path(BLOCK) / ".auber.begun").exists()
    assert not folder.end_attempt(BLOCK, "auber"), "it could still sign off"
    with folder.attempt(BLOCK, "auber"):  # its process is killed here
        assert folder.end_attempt(BLOCK, "auber")
        assert not folder.end_attempt(BLOCK, "auber"), "it is asked once"


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
        (
            "local",
            2,
            "engine local does one run at a time, found --jobs 2; add --engine processes or ray",
        ),
    ],
)
def test_a_place_that_cannot_be(engine, jobs, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        Place(engine, Request(jobs=jobs))
