from __future__ import annotations

import sys
import threading
import time
from types import SimpleNamespace

import pytest

from auber.errors import ConfigError
from auber.study import Place, State, StudyFolder, ray_engine, run_study
from auber.study.block import BlockJob
from auber.study.plan import Block
from tests.study.tiny import QUICK, Notes, WorkerKiller, results_of, tiny_study

BLOCK = Block("agreement", "seen", 0)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_workers_and_one_killed_give_the_results_of_one_process(ray, unbroken, tmp_path):
    study, whole, _ = unbroken
    folder, notes = StudyFolder(tmp_path / "study"), Notes()
    with WorkerKiller(folder, BLOCK) as killer:
        outcomes = run_study(study, folder, notes, place=Place("ray", jobs=2))
    assert killer.killed == 1
    assert {outcome.state for outcome in outcomes} == {State.COMPLETE}
    assert results_of(study, folder.path) == results_of(study, whole)
    assert len(notes.ended) == 10


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_node_that_is_lost_for_good_is_a_failure(ray, model, tmp_path, monkeypatch):
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    node = cluster.add_node(num_cpus=1)
    # A worker outlives its node for a moment, in which a shorter search would end.
    study = tiny_study(model, methods=["auber"], settings={**QUICK, "agent.episodes": 150})
    folder = StudyFolder(tmp_path / "study")

    def lose_the_node() -> None:
        while not (folder.run_path(BLOCK, "auber") / "run.json").is_file():
            time.sleep(0.01)
        cluster.remove_node(node, allow_graceful=False)

    thread = threading.Thread(target=lose_the_node)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    try:
        thread.start()
        run_study(study, folder, Notes(), place=Place("ray", patience=3))
    finally:
        thread.join()
        cluster.shutdown()
    assert folder.state(BLOCK, "start") is State.COMPLETE
    # Ray gives up on the task before or after we give up on the node.
    lost = ("no node with 1 CPU is left, and none came in 3 s", "its worker or node was lost (")
    assert folder.failure(BLOCK, "auber").error.startswith(lost)


@pytest.mark.slow
def test_a_request_that_this_machine_cannot_meet(ray, model, tmp_path):
    place = Place("ray", num_gpus=99)
    message = "engine ray: a run asks for .*'GPU': 99.*, this machine has . GPUs; ask for less or"
    with pytest.raises(ConfigError, match=f"^{message}"):
        run_study(tiny_study(model), StudyFolder(tmp_path / "study"), Notes(), place=place)


class RayError(Exception):
    """Any error of Ray."""


class WorkerCrashedError(RayError):
    """A worker is gone."""


class RayTaskError(RayError):
    """The task itself raised something."""

    def __init__(self, cause):
        super().__init__("ray::do_block_quietly() (pid=1)")
        self.cause = cause


class StandIn:
    """The part of Ray that the engine uses; `fate(run, number)` is the error of a task, or None."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, fate):
        self.handed_in, self._fate = [], fate

    def remote(self, function):
        self._function = function
        return self

    def options(self, **options):
        self.max_retries = options["max_retries"]
        return SimpleNamespace(remote=self._hand_in)

    def _hand_in(self, job):
        self.handed_in.append(job)
        return len(self.handed_in) - 1

    def wait(self, references, timeout):
        return references[:1], references[1:]

    def get(self, reference):
        job = self.handed_in[reference]
        error = self._fate(job.names[0], reference)
        if error is not None:
            raise error
        self._function(job)

    def nodes(self):
        return [{"Alive": True, "Resources": {"CPU": 1.0}}]

    def cluster_resources(self):
        return {"CPU": 1.0}


def distribute(path, fate, monkeypatch, **changes):
    """Do a study on the stand-in; return the runs in the order of their tasks, and the notes."""
    study, cluster, notes = tiny_study(**changes), StandIn(fate), Notes()
    monkeypatch.setattr(
        ray_engine,
        "do_block_quietly",
        lambda job: job.folder.record_failure(BLOCK, job.names[0], "no x", skipped=True),
    )
    names = tuple(run.name for run in study.runs(BLOCK))
    job = BlockJob(study, StudyFolder(path), BLOCK, names, None)
    ray_engine._distribute(cluster, [job], notes, Place("ray", retries=2, patience=1))
    assert cluster.max_retries == 0
    return [job.names[0] for job in cluster.handed_in], notes


def test_workers_lost_now_and_then_are_replaced(tmp_path, monkeypatch):
    def fate(name, number):
        return WorkerCrashedError() if number % 2 else None

    methods = ["original", "greedy", "exhaustive"]
    _, notes = distribute(tmp_path, fate, monkeypatch, methods=methods)
    assert sorted(outcome.run for outcome in notes.ended) == sorted(["start", *methods])
    assert {outcome.error for outcome in notes.ended} == {"no x"}


def test_a_run_that_ends_its_worker_each_time_fails(tmp_path, monkeypatch):
    def fate(name, number):
        return WorkerCrashedError() if name == "start" else None

    tried, notes = distribute(tmp_path, fate, monkeypatch, methods=["original"])
    assert tried == ["start"] * 3 + ["original"]
    errors = {outcome.run: outcome.error for outcome in notes.ended}
    lost = "its worker or node was lost (WorkerCrashedError), 3 times without getting further: "
    assert errors["start"].startswith(lost)
    assert errors["original"] == "no x"


def test_an_error_of_our_code_is_not_tried_again(tmp_path, monkeypatch):
    def fate(name, number):
        return RayTaskError(ImportError("no module named auber")) if name == "start" else None

    tried, notes = distribute(tmp_path, fate, monkeypatch, methods=["original"])
    assert tried == ["start", "original"]
    assert notes.ended[0].error == "ImportError: no module named auber"


@pytest.mark.parametrize(
    ("address", "jobs", "message"),
    [
        ("127.0.0.1:1", 1, "RAY_ADDRESS must be a cluster that accepts the connection, found"),
        ("auto", 2, "--jobs is for a cluster on this machine, found 2 with RAY_ADDRESS; leave it"),
    ],
)
def test_a_wrong_cluster(ray, model, tmp_path, monkeypatch, address, jobs, message):
    monkeypatch.setenv("RAY_ADDRESS", address)
    study, folder = tiny_study(model), StudyFolder(tmp_path / "study")
    with pytest.raises(ConfigError, match=f"^engine ray: {message}"):
        run_study(study, folder, Notes(), place=Place("ray", jobs=jobs))


def test_without_ray_the_error_names_what_to_install(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    message = r"^engine ray needs Ray, which is not installed; pip install 'auber\[ray\]'$"
    with pytest.raises(ConfigError, match=message):
        run_study(tiny_study(model), StudyFolder(tmp_path / "study"), Notes(), place=Place("ray"))
