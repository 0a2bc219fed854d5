from __future__ import annotations

import itertools

from auber.config import make_config
from auber.data import load_task
from auber.data.splits import make_splits
from auber.search.registry import METHODS
from auber.search.toy import ToyLayer
from auber.study import StudyFolder
from auber.study.estimate import Bounds, Clock, Estimate, _most_rewards, count_bounds, read_clock
from auber.study.plan import Block, StudyRun
from tests.search.made import CountingToy
from tests.study.tiny import tiny_study

BLOCK = Block("agreement", "seen", 0)


def run_of(method: str | None) -> StudyRun:
    return StudyRun(method or "start", method, from_start=method is not None, is_matched=False)


def test_a_run_is_expected_to_take_as_long_as_its_kind():
    clock = Clock()
    clock.add("rte", "auber", 10)
    clock.add("rte", "auber", 20)
    clock.add("cola", "auber", 60)
    assert clock.expect("rte", "auber") == 15
    assert clock.expect("mrpc", "auber") == 30, "its method on any task"
    assert clock.expect("rte", None) is None
    open_runs = [(Block("rte", "seen", 1), run_of(name)) for name in ("auber", None)]
    assert clock.estimate(open_runs) == Estimate(open=2, seconds=15, unknown=1)
    assert clock.guess(open_runs) == 15 + 30
    assert clock.guess([]) is None
    assert Clock().guess(open_runs) is None


def test_the_clock_is_read_from_finished_runs(unbroken):
    study, path, _ = unbroken
    clock = read_clock(study, StudyFolder(path))
    for method in (None, *study.methods):
        assert 0 < clock.expect("agreement", method) < 60


def test_bounds_of_the_embedded_default():
    study = tiny_study(
        methods=["auber", "greedy", "exhaustive", "original"],
        settings={"agent.episodes": 10, "first.epochs": 2, "layer.epochs": 1, "last.epochs": 1},
    )
    runs = {run.name: run for run in study.runs(BLOCK)}
    # Steps of 32 rows for an epoch: 600 rows 19, mini-train of 200 rows 7, nine tenths 17.
    assert count_bounds(study, [(BLOCK, runs["start"])]) == Bounds(0, 38)
    assert count_bounds(study, [(BLOCK, runs["original"])]) == Bounds(0, 0)
    for name, rewards in (("auber", 78), ("greedy", 36), ("exhaustive", 255)):
        assert count_bounds(study, [(BLOCK, runs[name])]) == Bounds(4 * rewards, 4 * 7 + 17)


def test_bounds_count_fold_models_and_the_first_tuning_of_the_pruned_model():
    settings = {"agent.episodes": 10, "first.epochs": 2, "layer.epochs": 1, "last.epochs": 1}
    block = Block("agreement", "crossfit", 0)

    def bounds(**changes):
        changed = {**settings, **changes}
        study = tiny_study(methods=["auber"], settings=changed, protocols=["crossfit"])
        run = study.runs(block)[1]
        return count_bounds(study, [(block, run)]), study.config(block, run)

    found, config = bounds()
    assert found.rewards == 4 * 78
    splits = make_splits(load_task("agreement").train.labels, config, 4, False)
    fold_models = 0
    for own in map(splits.without_fold, range(3)):
        layers = [-(-len(layer.mini_train) // 32) for layer in own.layers]
        first, last = -(-len(own.first) // 32), -(-len(own.last_train) // 32)
        fold_models += 2 * first + sum(layers) + last
    assert found.tuning_steps == fold_models + 38 + 4 * 7 + 17
    smooth = {"search.prior": "voita", "reward.measure": "smooth", "reward.caution": 1.0}
    kept, _ = bounds(**{"search.rewind": False, **smooth})
    assert kept.tuning_steps == found.tuning_steps - 38, "the start itself is pruned"
    # A game may change every head; caution scores each alone and the whole.
    assert kept.rewards == 4 * (11 * 8 + 1 + 9)


def test_no_search_takes_more_rewards_than_its_bound():
    config = make_config(
        "default",
        settings={"agent.learning_starts": 4, "agent.batch_size": 4, "agent.hidden_size": 8},
    )
    for episodes, given in itertools.product((0, 1, 3), ((), (0, 2))):
        settings = {
            "agent.episodes": episodes,
            "search.prior": "voita" if given else "none",
            "reward.caution": 0.0,
        }
        for name in ("auber", "greedy"):
            toy = CountingToy(ToyLayer(5, seed=1))
            choice = METHODS[name].choose_layer(toy.search(config.replace(settings), prior=given))
            assert choice.rewards_computed <= _most_rewards(name, config.replace(settings), 5)


def test_bounds_count_the_layers_that_are_searched():
    settings = {"agent.episodes": 10, "layer.epochs": 1, "last.epochs": 1, "search.layers": "1,3"}
    study = tiny_study(methods=["auber", "random", "original+tuning"], settings=settings)
    runs = {run.name: run for run in study.runs(BLOCK)}
    assert count_bounds(study, [(BLOCK, runs["auber"])]) == Bounds(2 * 78, 2 * 7 + 17)
    for name in ("random-0", "original+tuning"):  # they are matched with it
        assert count_bounds(study, [(BLOCK, runs[name])]) == Bounds(0, 2 * 7 + 17)


def test_no_run_costs_more_than_its_bounds(unbroken):
    study, path, _ = unbroken
    for run in study.runs(BLOCK):
        bounds = count_bounds(study, [(BLOCK, run)])
        cost = StudyFolder(path).result(BLOCK, run).cost
        assert cost.rewards_computed <= bounds.rewards
        assert cost.tuning_steps <= bounds.tuning_steps
