from __future__ import annotations

import sys
import threading
import time

import pytest

from auber.errors import ConfigError
from auber.study.engines import Engine
from auber.study.folder import State, StudyFolder
from auber.study.plan import Block
from auber.study.runner import run_study
from tests.study.tiny import QUICK, Notes, WorkerKiller, results_of, tiny_study

BLOCK = Block("agreement", "seen", 0)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_workers_and_one_killed_give_the_results_of_one_process(ray, unbroken, tmp_path):
    study, whole, _ = unbroken
    folder, notes = StudyFolder(tmp_path / "study"), Notes()
    with WorkerKiller(folder, BLOCK) as killer:
        outcomes = run_study(study, folder, notes, engine=Engine("ray", jobs=2))
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
        run_study(study, folder, Notes(), engine=Engine("ray", patience=3))
    finally:
        thread.join()
        cluster.shutdown()
    assert folder.state(BLOCK, "start") is State.COMPLETE
    # Ray gives up on the task before or after we give up on the node.
    lost = ("no node with 1 CPU is left, and none came in 3 s", "its worker or node was lost (")
    assert folder.failure(BLOCK, "auber").error.startswith(lost)


@pytest.mark.slow
def test_a_request_that_this_machine_cannot_meet(ray, model, tmp_path):
    engine = Engine("ray", num_gpus=99)
    message = "engine ray: a run asks for .*'GPU': 99.*, this machine has . GPUs; ask for less or"
    with pytest.raises(ConfigError, match=f"^{message}"):
        run_study(tiny_study(model), StudyFolder(tmp_path / "study"), Notes(), engine=engine)


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
        run_study(study, folder, Notes(), engine=Engine("ray", jobs=jobs))


def test_without_ray_the_error_names_what_to_install(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    message = r"^engine ray needs Ray, which is not installed; pip install 'auber\[ray\]'$"
    with pytest.raises(ConfigError, match=message):
        run_study(tiny_study(model), StudyFolder(tmp_path / "study"), Notes(), engine=Engine("ray"))
