from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import auber
from auber.errors import ConfigError, ModelError, RunError
from auber.models.plan import PruningPlan
from auber.scoring import DeviceWorkers, LayerScorer, ShardedScorer, open_workers
from auber.scoring.sharded import deal_rows
from auber.training.devices import Hardware
from tests.scoring.test_scorer import ALL_METRICS, MASKS, made, random_rows
from tests.small import cpu, small_config, small_start, small_task
from tests.tiny_models import LAYERS, tiny_model


def on_the_cpu(num_shards):
    return DeviceWorkers(cpu(), [torch.device("cpu")] * num_shards)


@given(st.lists(st.integers(1, 128), min_size=1, max_size=60), st.data())
def test_rows_are_dealt_evenly(lengths, data):
    num_shards = data.draw(st.integers(1, len(lengths)))
    parts = deal_rows(lengths, num_shards)
    assert sorted(row for part in parts for row in part) == list(range(len(lengths)))
    tokens = [sum(lengths[row] for row in part) for part in parts]
    assert min(tokens) > 0
    assert max(tokens) - min(tokens) <= max(lengths)
    assert deal_rows(lengths, num_shards) == parts


@pytest.mark.parametrize("num_shards", [2, 23])
@pytest.mark.parametrize(("kind", "metric", "labels"), ALL_METRICS)
def test_shards_score_like_one_scorer(kind, metric, labels, num_shards):
    model, rows = made(kind, labels=labels)
    num_shards = min(num_shards, len(rows))
    whole = LayerScorer(model, 1, rows, metric, cpu())
    workers = on_the_cpu(num_shards)
    sharded = ShardedScorer(model, 1, rows, metric, cpu(), workers)
    assert sharded.present == whole.present
    scores, expected = sharded.score_many(MASKS), whole.score_many(MASKS)
    if not whole.metric.exact:  # sums of fractions
        counts_answers = metric == "span_f1"  # vectors and numbers keep float32's rounding
        assert scores == pytest.approx(expected, abs=1e-12 if counts_answers else 1e-6)
        assert sharded.key == f"{whole.key}-{num_shards}"
    else:
        assert scores == expected
        assert sharded.key == whole.key
    assert sharded.score((1, 3)) == pytest.approx(scores[2], abs=1e-6)
    # in low precision rounding depends on the shards
    hardware = replace(cpu(), precision="bfloat16")
    key = ShardedScorer(model, 1, rows, metric, hardware, workers).key
    assert key == f"{LayerScorer(model, 1, rows, metric, hardware).key}-{num_shards}"
    # another scorer may use the workers in between
    other = ShardedScorer(model, 0, rows, metric, cpu(), workers).score((1,))
    assert {each._sharing for each in workers._scorers} == {num_shards}, "they share the memory"
    assert other == pytest.approx(LayerScorer(model, 0, rows, metric, cpu()).score((1,)), abs=1e-6)
    assert sharded.score_many(MASKS) == scores
    workers.close()


def test_shards_are_computed_side_by_side_with_the_pinned_threads(monkeypatch):
    meeting, threads = threading.Barrier(2, timeout=120), []
    statistics = LayerScorer.statistics

    def meet(self, masks):
        meeting.wait()  # breaks unless both shards are under way at once
        threads.append(torch.get_num_threads())
        return statistics(self, masks)

    monkeypatch.setattr(LayerScorer, "statistics", meet)
    workers = on_the_cpu(2)
    model, rows = made()
    ShardedScorer(model, 1, rows, "accuracy", cpu(), workers).score((1,))
    workers.close()
    assert threads == [1, 1]


def test_one_piece_needs_no_workers():
    with open_workers(small_config(), cpu(), 9) as workers:
        assert workers is None


@pytest.mark.parametrize(
    ("device", "found", "places"),
    [("cuda:0", 4, ["cuda:0", "cuda:1", "cuda:2"]), ("cuda:1", 3, ["cuda:1", "cuda:0", "cuda:2"])],
)
def test_each_shard_has_a_gpu_of_its_own(monkeypatch, device, found, places):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: found)
    with open_workers(
        small_config(reward__shards=3), Hardware(torch.device(device), "float32", 1), 9
    ) as workers:
        assert [str(place.device) for place in workers._places] == places


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_more_shards_than_devices(monkeypatch, device):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    hardware = Hardware(torch.device(device, 0), "float32", 1)
    message = (
        rf"^reward.shards must be at most the number of {device} devices here \(1\), found 2; "
        "lower it, or set reward.spread=ray to use those of a cluster$"
    )
    with (
        pytest.raises(ConfigError, match=message),
        open_workers(small_config(reward__shards=2), hardware, 9),
    ):
        pass


def test_more_shards_than_rows():
    model, rows = made()
    message = (
        r"^reward.shards must be at most the number of reward rows \(23\), found 24; lower it$"
    )
    with pytest.raises(ConfigError, match=message):
        ShardedScorer(model, 0, rows, "accuracy", cpu(), on_the_cpu(24))


def test_a_process_group_has_no_shards(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    message = (
        "^reward.shards must be 1 in a group of 2 processes, found 2; start one process, it drives "
        "all shards$"
    )
    with (
        pytest.raises(ConfigError, match=message),
        open_workers(small_config(reward__shards=2), cpu(), 9),
    ):
        pass


def test_without_ray_it_says_what_to_install_before_anything_is_computed(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    model, tokenizer = small_start()
    config = small_config(reward__shards=2, reward__spread="ray")
    message = r"^reward.spread=ray needs Ray, which is not installed; pip install 'auber\[ray\]'$"
    with pytest.raises(ConfigError, match=message):
        auber.prune(model, tokenizer, task=small_task(), config=config)


# --- whole runs ----------------------------------------------------------------------------------


def run(folder, **changes):
    model, tokenizer = small_start()
    config = small_config(first__when="always", first__epochs=6, **changes)
    return auber.prune(model, tokenizer, task=small_task(), config=config, out=folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run on one."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return folder, run(folder)


def assert_the_same_run(whole, folder, outcome):
    whole_folder, expected = whole
    assert expected.plan.num_heads > 0
    assert outcome.plan == expected.plan
    assert (outcome.result["dev"], outcome.result["train"]) == (
        expected.result["dev"],
        expected.result["train"],
    )
    assert (folder / "scores.jsonl").read_text() == (whole_folder / "scores.jsonl").read_text()
    lines = (folder / "scores.jsonl").read_text().splitlines()
    assert len({json.loads(line)["score"] for line in lines}) > 3


def test_the_plan_is_that_on_one(whole, tmp_path):
    outcome = run(tmp_path / "run", reward__shards=3)
    assert_the_same_run(whole, tmp_path / "run", outcome)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("auber-shard")]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ray_workers_of_which_one_is_killed_give_the_plan_on_one(
    ray, whole, tmp_path, monkeypatch, caplog
):
    from auber.scoring.ray_shards import RayWorkers

    statistics, calls = RayWorkers.statistics, []

    def deadly(self, assignment, masks):
        calls.append(assignment.layer)
        if len(calls) == 4:  # in the middle of the first layer, and of an answer
            die_at_the_next_question(ray, self._actors[1])
        return statistics(self, assignment, masks)

    monkeypatch.setattr(RayWorkers, "statistics", deadly)
    with caplog.at_level(logging.WARNING, "auber.scoring.ray_shards"):
        outcome = run(tmp_path / "run", reward__shards=2, reward__spread="ray")
    assert_the_same_run(whole, tmp_path / "run", outcome)
    assert set(calls) == set(range(LAYERS))
    ours = [
        record.getMessage()
        for record in caplog.records
        if record.name == "auber.scoring.ray_shards"
    ]
    assert ours == ["the Ray worker of shard 1 was lost (ActorDiedError) and is being replaced"]
    assert not ray.is_initialized(), "the cluster that was started for the run ends with it"


LISTENING = """
import psutil
from auber.scoring.ray_shards import RayWorkers
from tests.small import cpu
workers = RayWorkers(cpu(), 1)
import ray
workers._connect()
ray.get(ray.remote(num_cpus=1)(lambda: None).remote())
me = psutil.Process()
for process in [me, *me.children(recursive=True)]:
    for socket in process.net_connections("inet"):
        if socket.status == "LISTEN":
            print(socket.laddr.ip)
workers.close()
"""


@pytest.mark.slow
def test_a_cluster_of_our_own_listens_on_this_machine_alone():
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", LISTENING],
        env={**kept, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert {address.removeprefix("::ffff:") for address in done.stdout.split()} == {"127.0.0.1"}


def test_a_cluster_that_is_not_there(ray, monkeypatch):
    from auber.scoring.ray_shards import RayWorkers

    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    workers = RayWorkers(cpu(), 2)
    model, rows = made()
    scorer = ShardedScorer(model, 1, rows, "accuracy", cpu(), workers)
    message = "^reward.spread=ray: RAY_ADDRESS must be a cluster .*, found '127.0.0.1:1' "
    with pytest.raises(ConfigError, match=message):
        scorer.score((1,))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_goes_wrong_in_a_ray_worker(ray, monkeypatch):
    from auber.scoring import ray_shards

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    model, rows = tiny_model("bert", num_labels=3), random_rows()
    workers = ray_shards.RayWorkers(cpu(), 2)
    scorer = ShardedScorer(model, 1, rows, "accuracy", cpu(), workers)
    masks = [*MASKS, PruningPlan({1: [1]}, {1: range(20)})]
    whole = LayerScorer(model, 1, rows, "accuracy", cpu())
    assert scorer.score_many(masks) == whole.score_many(masks)
    assert [sharing for *_, sharing in workers._arguments] == [2, 2], "they share the memory"

    def cramped(shard):
        def fail(*_):
            raise ModelError("no room")

        shard._scorer.statistics = fail

    ray.get(workers._actors[0].__ray_call__.remote(cramped))
    with pytest.raises(ModelError, match="^no room$"):
        scorer.score((1,))

    monkeypatch.setattr(ray_shards, "_ATTEMPTS", 1)
    ray.get(
        workers._actors[0].__ray_call__.remote(
            lambda shard: shard._scorer.__dict__.pop("statistics")
        )
    )
    die_at_the_next_question(ray, workers._actors[1])
    with pytest.raises(
        RunError, match=r"^reward.shards: the Ray worker of shard 1 was lost 1 times in a row"
    ):
        scorer.score((1,))
    workers.close()

    monkeypatch.setattr(ray_shards, "_PATIENCE", 1.0)
    greedy = ray_shards.RayWorkers(replace(cpu(), threads=2), 2)
    scorer = ShardedScorer(model, 1, rows, "accuracy", cpu(), greedy)
    with pytest.raises(
        RunError,
        match="^reward.shards: [12] of 2 Ray workers found no node with 2 CPUs and 0 GPUs free in",
    ):
        scorer.score((1,))
    greedy.close()

    on_gpus = ray_shards.RayWorkers(Hardware(torch.device("cuda", 0), "float32", 1), 99)
    with pytest.raises(
        ConfigError,
        match=r"^reward.shards must be at most the number of GPUs of the Ray cluster",
    ):
        ShardedScorer(model, 1, random_rows(count=99), "accuracy", cpu(), on_gpus).score((1,))
    on_gpus.close()
    assert ray.is_initialized(), "a connection of the caller's own is left alone"


def die_at_the_next_question(ray, actor):
    """Have a worker kill itself while it computes."""

    def doom(shard):
        shard._scorer.statistics = lambda masks: os.kill(os.getpid(), signal.SIGKILL)

    ray.get(actor.__ray_call__.remote(doom))


@pytest.mark.gpu
@pytest.mark.parametrize("layer", range(LAYERS))
def test_shards_on_a_gpu_record_and_replay_beside_each_other(layer):
    """Two threads on one device: what several devices do, as far as one can show it."""
    hardware = Hardware(torch.device("cuda", 0), "float32", 1)
    model = tiny_model("bert", num_labels=3, hidden_size=64).cuda()
    rows = random_rows(count=200)
    expected = LayerScorer(model, layer, rows, "accuracy", hardware).score_many(MASKS)
    workers = DeviceWorkers(hardware, [hardware.device] * 2)
    sharded = ShardedScorer(model, layer, rows, "accuracy", hardware, workers)
    for _ in range(3):
        assert sharded.score_many(MASKS) == expected
        assert [sharded.score(mask) for mask in MASKS] == expected
    workers.close()
