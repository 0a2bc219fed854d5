from __future__ import annotations

import sys
import threading
import time

import pytest

from auber.errors import ConfigError
from auber.study import Place, Request, State, StudyFolder, run_study
from auber.study.plan import Block
from tests.study.tiny import Notes, WorkerKiller, results_of, tiny_study

BLOCK = Block("agreement", "seen", 0)


@pytest.fixture
def ray(monkeypatch):
    """Ray, where it is installed; no cluster is named or left behind."""
    found = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    yield found
    found.shutdown()


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
def test_a_node_lost_for_good_is_a_failure(ray, model, tmp_path, monkeypatch):
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    node = cluster.add_node(num_cpus=1)
    study, folder = tiny_study(model), StudyFolder(tmp_path / "study")

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
    assert run_study(study, folder, Notes())[-1].state is State.COMPLETE, "a later call, elsewhere, does the rest"


def test_a_cluster_that_is_not_there(ray, model, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(
        ConfigError, match="^engine ray: RAY_ADDRESS must be a cluster that takes us, found '127.0.0.1:1'"
    ):
        run_study(tiny_study(model), StudyFolder(tmp_path / "study"), Notes(), place=Place("ray"))


def test_jobs_are_for_one_machine(ray, model, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    message = "engine ray: --jobs is for a cluster on this machine, found 2 beside RAY_ADDRESS; leave it out"
    with pytest.raises(ConfigError, match=f"^{message}"):
        run_study(tiny_study(model), StudyFolder(tmp_path / "study"), Notes(), place=Place("ray", Request(jobs=2)))


@pytest.mark.slow
def test_a_request_this_machine_cannot_meet(ray, model, tmp_path):
    message = "engine ray: a run asks for .*'GPU': 99.*, this machine has . GPUs; ask for less or set RAY_ADDRESS"
    with pytest.raises(ConfigError, match=f"^{message}"):
        run_study(tiny_study(model), StudyFolder(tmp_path / "study"), Notes(), place=Place("ray", Request(num_gpus=99)))


def test_without_ray_it_says_what_to_install(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        ConfigError, match=r"^engine ray needs Ray, which is not installed; pip install 'auber\[ray\]'$"
    ):
        run_study(tiny_study(model), StudyFolder(tmp_path / "study"), Notes(), place=Place("ray"))
