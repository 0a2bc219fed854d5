"""What holds for every method: what it may remove, what it must not change, and that a seed decides."""

from __future__ import annotations

import json

import pytest
import torch

import auber
from auber.errors import ConfigError
from auber.models.surgery import remove_heads
from auber.search.registry import METHODS, get_method
from tests.search.made import ranking_inputs
from tests.small import small_config, small_start, small_task
from tests.tiny_models import HEADS, LAYERS, MODEL_TYPES, tiny_model

RANKING = ["random", "confidence", "michel", "voita"]
CONFIG = small_config(voita__epochs=1, voita__trials=2)


def choose(name, model, num_removed, config=CONFIG):
    choice = get_method(name).choose_plan(ranking_inputs(model, num_removed, config=config))
    json.dumps(choice.details)
    return choice


def test_the_table():
    assert list(METHODS) == [
        "auber", "auber-query", "auber-key", "auber-l2", "auber-reverse", "greedy", "exhaustive",
        "random", "confidence", "michel", "voita", "original", "original+tuning",
    ]  # fmt: skip
    for name, method in METHODS.items():
        assert name == method.name
        assert (method.choose_layer is None) != (method.choose_plan is None)
    assert {name for name, method in METHODS.items() if not method.decides_number} == {
        *RANKING, "original", "original+tuning",
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"^Unknown method 'mihcel'. Did you mean 'michel'\?"):
        get_method("mihcel")


@pytest.mark.parametrize("name", RANKING)
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_family_loses_as_many_heads_as_asked(name, model_type):
    model = tiny_model(model_type)
    plan = choose(name, model, 5).plan
    assert plan.num_removed == 5
    remove_heads(model, plan)


@pytest.mark.parametrize("name", RANKING)
@pytest.mark.parametrize("num_labels", [1, 3])
def test_numbers_and_several_classes(name, num_labels):
    assert choose(name, tiny_model(num_labels=num_labels), 5).plan.num_removed == 5


@pytest.mark.parametrize("name", RANKING)
@pytest.mark.parametrize("model_type", ["bert", "mpnet"])
def test_a_pruned_start_keeps_a_head_in_each_layer(name, model_type):
    model = tiny_model(model_type)
    remove_heads(model, {0: [1], 1: [0, 2, 3]})
    most = LAYERS * HEADS - 4 - LAYERS
    plan = choose(name, model, most).plan
    assert plan.num_removed == most
    remove_heads(model, plan)  # refuses heads that are gone already, and a layer without a head


@pytest.mark.parametrize("name", RANKING)
def test_a_layer_without_heads_is_passed_over(name):
    model = tiny_model()
    remove_heads(model, {1: range(HEADS)}, allow_empty_layers=True)
    plan = choose(name, model, 6).plan
    assert {layer: len(heads) for layer, heads in plan.items()} == {0: 3, 2: 3}


@pytest.mark.parametrize("name", RANKING)
def test_nothing_may_be_asked_for(name):
    assert choose(name, tiny_model(), 0).plan == {}


@pytest.mark.parametrize("name", RANKING)
@pytest.mark.parametrize("training", [True, False])
def test_the_model_and_the_global_generator_are_left_as_they_were(name, training):
    model = tiny_model().train(training)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    attention, random_state = model.config._attn_implementation, torch.get_rng_state()
    choose(name, model, 4)
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    assert model.training is training
    assert model.config._attn_implementation == attention
    assert all(
        parameter.requires_grad and parameter.grad is None for parameter in model.parameters()
    )
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())
    assert torch.equal(torch.get_rng_state(), random_state)


@pytest.mark.parametrize("name", RANKING)
def test_a_seed_decides(name):
    first, again = (choose(name, tiny_model(), 4) for _ in range(2))
    assert first == again


@pytest.mark.parametrize("name", ["random", "voita"])
def test_another_seed_is_another_draw(name):
    config = CONFIG.replace({"seed": 1})
    one, other = choose(name, tiny_model(), 6), choose(name, tiny_model(), 6, config)
    assert (one.plan, one.details) != (other.plan, other.details)


@pytest.mark.parametrize("name", ["confidence", "michel", "voita", "greedy", "exhaustive"])
def test_a_whole_run(name, tmp_path):
    model, tokenizer = small_start()
    config = small_config(
        first__when="never",
        layer__epochs=0,
        last__epochs=0,
        agent__episodes=2,
        voita__epochs=1,
        voita__trials=2,
    )
    heads = None if get_method(name).decides_number else 4
    arguments = {
        "task": small_task(),
        "method": name,
        "heads": heads,
        "config": config,
        "out": tmp_path / "run",
    }
    outcome = auber.prune(model, tokenizer, **arguments)
    result = outcome.result
    assert result["method"] == name
    assert all(len(gone) < HEADS for gone in outcome.plan.values())
    if heads is not None:
        assert outcome.plan.num_removed == heads
        assert result["cost"]["rewards_asked"] == 0
    if name == "exhaustive":
        assert result["cost"]["rewards_computed"] == LAYERS * (2**HEADS - 1)
        assert len((tmp_path / "run" / "scores.jsonl").read_text().splitlines()) == LAYERS * (
            2**HEADS - 1
        )
    if name == "greedy":
        assert (
            0
            < result["cost"]["rewards_computed"]
            == len((tmp_path / "run" / "scores.jsonl").read_text().splitlines())
        )
