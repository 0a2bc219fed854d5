from __future__ import annotations

from multiprocessing.connection import wait

import pytest

from auber.errors import ConfigError
from auber.study.block import BlockJob
from auber.study.engines import Engine, FolderWatcher, LostWorkers
from auber.study.folder import State, StudyFolder
from auber.study.plan import Block
from auber.study.runner import run_study
from tests.study.tiny import QUICK, Notes, WorkerKiller, results_of, tiny_study

BLOCK = Block("agreement", "seen", 0)


def test_a_stopped_study_releases_its_claims(model, tmp_path, monkeypatch):
    endless = {**QUICK, "agent.episodes": 100_000}
    study = tiny_study(model, methods=["auber"], settings=endless)
    folder = StudyFolder(tmp_path / "study")
    lock = folder.run_path(BLOCK, "auber") / ".lock"

    def stop_in_the_search(sources, timeout):
        if lock.exists():
            raise KeyboardInterrupt
        return wait(sources, timeout)

    monkeypatch.setattr("auber.study.engines.wait", stop_in_the_search)
    monkeypatch.setattr("auber.study.engines._LEAVE_WITHIN", 60.0)
    with pytest.raises(KeyboardInterrupt):
        run_study(study, folder, Notes(), engine=Engine("processes"))
    assert not (folder.block_path(BLOCK) / ".claim").exists()
    assert not lock.exists()
    assert folder.failure(BLOCK, "auber") is None


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_several_processes_and_one_killed_give_the_results_of_one(unbroken, tmp_path):
    study, whole, _ = unbroken
    folder, notes = StudyFolder(tmp_path / "study"), Notes()
    with WorkerKiller(folder, BLOCK) as killer:
        outcomes = run_study(study, folder, notes, engine=Engine("processes", jobs=2))
    assert killer.killed == 1
    assert {outcome.state for outcome in outcomes} == {State.COMPLETE}
    assert results_of(study, folder.path) == results_of(study, whole)
    assert {(outcome.block.seed, outcome.run) for outcome in notes.ended} == {
        (block.seed, run.name) for block in study.blocks() for run in study.runs(block)
    }


FURTHER = (
    "times without getting further: the run itself may end its worker, for example by the memory "
    "that it needs"
)


def test_a_run_is_given_up_when_it_gets_no_further(tmp_path):
    folder, notes = StudyFolder(tmp_path), Notes()
    job = BlockJob(tiny_study(), folder, BLOCK, ("start", "auber"), None)
    losses, watch = LostWorkers(retries=1), FolderWatcher([job], notes)
    assert losses.may_retry(job, "lost")
    assert losses.may_retry(job, "lost"), "the other run is left"
    assert folder.failure(BLOCK, "start").error == f"lost, 2 {FURTHER}"
    watch.look()
    watch.look()
    assert [(outcome.run, outcome.state) for outcome in notes.ended] == [("start", "failed")]

    stages = folder.run_path(BLOCK, "auber") / "stages"
    stages.mkdir(parents=True)
    for stage in range(9):
        assert losses.may_retry(job, "lost")
        (stages / f"layer-{stage:02}.json").touch()
    for _ in range(9):
        assert losses.may_retry(job, "lost")
        with (stages.parent / "scores.jsonl").open("a") as file:
            file.write("{}\n")
    assert losses.may_retry(job, "lost")
    assert not losses.may_retry(job, "lost"), "nothing is left"
    assert folder.failure(BLOCK, "auber").error == f"lost, 2 {FURTHER}"
    assert not losses.may_retry(job, "lost")


@pytest.mark.parametrize("engine", ["processes", "ray"])
def test_threads_must_be_pinned(model, tmp_path, engine):
    study = tiny_study(model, settings={**QUICK, "threads": 0})
    message = f"engine {engine}: threads must be set, so .*, found 0; write threads = 1 under"
    with pytest.raises(ConfigError, match=message):
        run_study(study, StudyFolder(tmp_path / "study"), Notes(), engine=Engine(engine))


@pytest.mark.parametrize(
    ("engine", "jobs", "message"),
    [
        ("rya", 1, "Unknown engine 'rya'. Did you mean 'ray'. Known: local, processes, ray"),
        ("processes", 0, "--jobs must be a whole number from 1, found 0"),
        ("local", 2, "engine local does one run at a time, found --jobs 2; add --engine processes"),
    ],
)
def test_a_place_that_cannot_be(engine, jobs, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        Engine(engine, jobs=jobs)
