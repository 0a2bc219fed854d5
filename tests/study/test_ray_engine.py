from __future__ import annotations

import sys
import threading
import time
from types import SimpleNamespace

import pytest

from auber.errors import ConfigError
from auber.study import Place, Request, State, StudyFolder, Work, ray_engine, run_study
from auber.study.plan import Block
from tests.study.tiny import QUICK, Notes, WorkerKiller, results_of, tiny_study

BLOCK = Block("agreement", "seen", 0)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_workers_and_one_killed_give_the_results_of_one_process(ray, unbroken, tmp_path):
    study, whole, _ = unbroken
    folder, notes = StudyFolder(tmp_path / "study"), Notes()
    with WorkerKiller(folder, BLOCK) as killer:
        outcomes = run_study(study, folder, notes, place=Place("ray", Request(jobs=2)))
    assert killer.killed == 1
    assert {outcome.state for outcome in outcomes} == {State.COMPLETE}
    assert results_of(study, folder.path) == results_of(study, whole)
    assert len(notes.ended) == 10


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_that_loses_its_worker_again_and_again_has_failed_and_the_others_go_on(
    ray, model, tmp_path
):
    study, folder = (
        tiny_study(model, methods=["auber", "original"]),
        StudyFolder(tmp_path / "study"),
    )
    with WorkerKiller(
        folder, BLOCK, times=9
    ):  # that it gets a little further in between is possible
        run_study(study, folder, Notes(), place=Place("ray", Request(retries=1)))
    assert folder.failure(BLOCK, "auber").error == (
        "its worker or node was lost (WorkerCrashedError), 2 times without getting further: it may be the run that ends its "
        "worker, by the memory it takes for one"
    )
    assert {run.name: str(folder.state(BLOCK, run)) for run in study.runs(BLOCK)} == {
        "start": "complete",
        "auber": "failed",
        "original": "complete",
    }


class RayError(Exception):
    """Anything that Ray says went wrong."""


class WorkerCrashedError(RayError):
    """A worker is gone."""


class RayTaskError(RayError):
    """The task itself raised something."""

    def __init__(self, cause):
        super().__init__("ray::work_quietly() (pid=1)")
        self.cause = cause


class StandIn:
    """Ray as far as the engine uses it: tasks are done when they are asked for, and `fate` says what becomes of each.

    `fate` takes the number of the task: an error is raised in its place, None lets it be done.
    """

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, fate):
        self.handed_in, self._fate = [], fate

    def remote(self, function):
        self._function = function
        return self

    def options(self, **options):
        self.max_retries = options["max_retries"]
        return SimpleNamespace(remote=self._hand_in)

    def _hand_in(self, work):
        self.handed_in.append(work)
        return len(self.handed_in) - 1

    def wait(self, references, timeout):
        return references[:1], references[1:]

    def get(self, reference):
        work = self.handed_in[reference]
        error = self._fate(work.names[0], reference)
        if isinstance(error, WorkerCrashedError) and error.args:  # in the run, and not before it
            (work.folder / work.block.path / f".{work.names[0]}.begun").touch()
        if error is not None:
            raise error
        self._function(work)

    def nodes(self):
        return [{"Alive": True, "Resources": {"CPU": 1.0}}]

    def cluster_resources(self):
        return {"CPU": 1.0}


def distribute(study, path, fate, monkeypatch, **request):
    """Do a study on the stand-in: the stand-in, what was heard."""
    cluster, notes = StandIn(fate), Notes()
    (path / BLOCK.path).mkdir(parents=True)  # as the claim does
    monkeypatch.setattr(
        ray_engine,
        "work_quietly",
        lambda work: StudyFolder(work.folder).record_skip(BLOCK, work.names[0], "x"),
    )
    works = [
        Work(study, path, block, tuple(run.name for run in study.runs(block)), None)
        for block in study.blocks()
    ]
    ray_engine._distribute(cluster, works, Request(**request), notes)
    return cluster, notes


def test_workers_lost_by_chance_are_made_up_for_with_what_users_get(tmp_path, monkeypatch):
    """Every second task loses its worker before it began, as where the killing hits workers that are starting."""
    study = tiny_study(methods=["original", "greedy", "exhaustive"])

    def fate(name, number):
        return WorkerCrashedError() if number % 2 else None

    cluster, notes = distribute(study, tmp_path, fate, monkeypatch)
    assert cluster.max_retries == 0, "Ray's own retries know nothing of what a run has reached"
    assert sorted(outcome.run for outcome in notes.ended) == [
        "exhaustive",
        "greedy",
        "original",
        "start",
    ]
    assert {outcome.error for outcome in notes.ended} == {"left out: 'x' has no result"}


def test_a_run_that_ends_its_worker_each_time_is_not_tried_for_ever(tmp_path, monkeypatch):
    study = tiny_study(methods=["original"])

    def fate(name, number):
        return WorkerCrashedError("in the run") if name == "start" else None

    cluster, notes = distribute(study, tmp_path, fate, monkeypatch)
    tried = [work.names[0] for work in cluster.handed_in]
    assert tried == ["start"] * 6 + ["original"]
    assert {outcome.run: outcome.error for outcome in notes.ended} == {
        "start": "its worker or node was lost (WorkerCrashedError), 6 times without getting further: it may be the run that ends "
        "its worker, by the memory it takes for one",
        "original": "left out: 'x' has no result",
    }


def test_an_error_of_the_work_itself_is_not_tried_again(tmp_path, monkeypatch):
    study = tiny_study(methods=["original"])

    def fate(name, number):
        return RayTaskError(ImportError("no module named auber")) if name == "start" else None

    cluster, notes = distribute(study, tmp_path, fate, monkeypatch)
    assert [work.names[0] for work in cluster.handed_in] == ["start", "original"]
    assert notes.ended[0].error == "ImportError: no module named auber"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_node_lost_for_good_is_a_failure(ray, model, tmp_path, monkeypatch):
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    node = cluster.add_node(num_cpus=1)
    # A worker outlives its node for a moment, in which a shorter search would come to its end.
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
        run_study(study, folder, Notes(), place=Place("ray", Request(patience=3)))
    finally:
        thread.join()
        cluster.shutdown()
    assert folder.state(BLOCK, "start") is State.COMPLETE
    # Ray gives up on the task before or after we give up on the node.
    lost = ("no node with 1 CPU is left, and none came in 3 s", "its worker or node was lost (")
    assert folder.failure(BLOCK, "auber").error.startswith(lost)
    assert run_study(study, folder, Notes())[-1].state is State.COMPLETE, (
        "a later call, elsewhere, does the rest"
    )


def test_a_cluster_that_is_not_there(ray, model, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(
        ConfigError,
        match="^engine ray: RAY_ADDRESS must be a cluster that takes us, found '127.0.0.1:1'",
    ):
        run_study(tiny_study(model), StudyFolder(tmp_path / "study"), Notes(), place=Place("ray"))


def test_jobs_are_for_one_machine(ray, model, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    message = "engine ray: --jobs is for a cluster on this machine, found 2 beside RAY_ADDRESS; leave it out"
    with pytest.raises(ConfigError, match=f"^{message}"):
        run_study(
            tiny_study(model),
            StudyFolder(tmp_path / "study"),
            Notes(),
            place=Place("ray", Request(jobs=2)),
        )


@pytest.mark.slow
def test_a_request_this_machine_cannot_meet(ray, model, tmp_path):
    message = "engine ray: a run asks for .*'GPU': 99.*, this machine has . GPUs; ask for less or set RAY_ADDRESS"
    with pytest.raises(ConfigError, match=f"^{message}"):
        run_study(
            tiny_study(model),
            StudyFolder(tmp_path / "study"),
            Notes(),
            place=Place("ray", Request(num_gpus=99)),
        )


def test_without_ray_it_says_what_to_install(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        ConfigError,
        match=r"^engine ray needs Ray, which is not installed; pip install 'auber\[ray\]'$",
    ):
        run_study(tiny_study(model), StudyFolder(tmp_path / "study"), Notes(), place=Place("ray"))
