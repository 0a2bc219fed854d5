"""The presets: `paper` and `reference` are pinned to the settings of the paper and its code."""

from __future__ import annotations

import pytest

from auber.config import PRESETS, PROTOCOLS, Reward, Search, make_config, settings
from auber.errors import ConfigError

# The paper's values; the reference's where the paper is silent; ours where both are.
PAPER = {
    "seed": 0,
    "protocol": "seen",
    "max_length": 128,
    "device": "auto",
    "precision": "auto",
    "threads": 0,
    "first.when": "auto",
    "first.require_learned": False,
    "first.epochs": 3,
    "first.learning_rate": 2e-5,
    "first.warmup": 0.0,
    "first.batch_size": 32,
    "reward.fraction": 2 / 3,
    "reward.max_rows": 0,
    "reward.scale": 100.0,
    "reward.stop": 0.0,
    "reward.measure": "metric",
    "reward.caution": 0.0,
    "reward.folds": 3,
    "reward.head": 0.0,
    "reward.latency": 0.0,
    "reward.latency_rows": 1,
    "reward.shards": 1,
    "reward.spread": "devices",
    "search.order": "forward",
    "search.layers": "all",
    "search.prior": "none",
    "search.prior_share": 1 / 3,
    "search.heads": 0,
    "search.rewards": 300,
    "search.rows": 1000,
    "search.minutes": 0.0,
    "search.rewind": True,
    "search.matrix": "value",
    "search.norm": "l1",
    "size.keep": 0.0,
    "size.tolerance": None,
    "size.units": "both",
    "size.even": False,
    "size.multiple": 8,
    "size.step": 0.0,
    "teacher.outputs": 0.0,
    "teacher.hidden": 0.0,
    "teacher.copies": 0,
    "teacher.noise": 0.2,
    "teacher.below": 1.0,
    "agent.episodes": 150,
    "agent.hidden_size": 512,
    "agent.hidden_layers": 3,
    "agent.scale_state": False,
    "agent.optimizer": "sgd",
    "agent.learning_rate": 0.03,
    "agent.momentum": 0.9,
    "agent.gradient_clamp": 1.0,
    "agent.batch_size": 128,
    "agent.learning_starts": 128,
    "agent.updates_per_episode": 1,
    "agent.replay_size": 5000,
    "agent.target_every": 35,
    "agent.gamma": 1.0,
    "agent.epsilon_start": 1.0,
    "agent.epsilon_end": 0.05,
    "agent.epsilon_decay": 256.0,
    "agent.double_q": False,
    "agent.stop_value": None,
    "agent.choose": "rollout",
    "layer.epochs": 3,
    "layer.learning_rate": 2e-6,
    "layer.warmup": 0.0,
    "layer.batch_size": 32,
    "last.epochs": 6,
    "last.learning_rate": 2e-6,
    "last.warmup": 0.0,
    "last.batch_size": 32,
    "last.watch_fraction": 0.1,
    "last.evaluations_per_epoch": 8,
    "last.patience": 20,
    "last.watch": "metric",
    "random.draw": 0,
    "voita.epochs": 3,
    "voita.learning_rate": 0.1,
    "voita.batch_size": 32,
    "voita.temperature": 2 / 3,
    "voita.stretch": 0.1,
    "voita.trials": 8,
    "surrogate.rewards": 200,
    "surrogate.start": 20,
    "surrogate.batch": 8,
    "surrogate.penalty": 0.1,
}
REFERENCE = {**PAPER, "search.norm": "l2", "reward.fraction": 0.25, "agent.stop_value": 0.2}
_SEARCH = Search(minutes=5.0)  # of `default` under other protocols than its own
RTE = {"first.epochs": 4, "first.learning_rate": 1e-5}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("task", ["mrpc", "cola", "wnli", "rte", None])
def test_paper_and_reference_are_pinned(task, protocol):
    paper, reference = {**PAPER, "protocol": protocol}, {**REFERENCE, "protocol": protocol}
    if task == "rte":
        paper, reference = {**paper, **RTE}, {**reference, **RTE}
    if task in ("rte", "wnli"):
        reference["reward.fraction"] = 1.0
    own = {"protocol": protocol}
    assert make_config("paper", task=task, settings=own).flat() == paper
    assert make_config("reference", task=task, settings=own).flat() == reference


def test_paper_and_reference_spell_out_every_setting():
    every = {info.key for info in settings()}
    assert PRESETS["paper"].settings.keys() == PRESETS["reference"].settings.keys() == every


def test_settings_for_a_protocol_are_used_with_that_protocol_only():
    own, other = make_config("default"), make_config("default", settings={"protocol": "seen"})
    found = (own.protocol, own.search.prior, own.reward.measure, own.agent.episodes)
    assert found == ("crossfit", "voita", "smooth", 40)
    assert (other.search, other.reward, other.agent.episodes) == (_SEARCH, Reward(), 150)
    assert (own.agent.choose, other.agent.choose) == ("best", "best")
    assert make_config("paper", settings={"protocol": "crossfit"}).search == Search()


def test_given_settings_replace_those_of_a_protocol(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text('protocol = "crossfit"\n[search]\nprior = "none"\n')
    for changed in (make_config(file=file), make_config(settings={"search.prior": "none"})):
        found = (changed.protocol, changed.search.prior, changed.reward.folds)
        assert found == ("crossfit", "none", 5)
    file.write_text('protocol = "heldout"\n')
    assert make_config(file=file).search == _SEARCH
    with pytest.raises(ConfigError, match="protocol must be seen, heldout, crossfit, found 7"):
        make_config(settings={"protocol": 7})
