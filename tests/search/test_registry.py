"""The registry, and what holds for every ranking: counts, side effects and seeds."""

from __future__ import annotations

import json

import pytest
import torch

import auber
from auber.config import make_config
from auber.errors import ConfigError
from auber.models.surgery import remove
from auber.search.registry import METHODS, default_method, get_method
from tests.kinds import TOKEN_KINDS, num_labels, random_kind_rows
from tests.search.made import ranking_inputs
from tests.small import small_config, small_start, small_task
from tests.tiny_models import HEADS, LAYERS, tiny_model

RANKINGS = ["random", "confidence", "michel", "fisher", "voita"]
TO_SIZE = ["random", "michel", "fisher", "voita"]
CONFIG = small_config(voita__epochs=1, voita__trials=2)


def choose(name, model, num_removed, config=CONFIG, rows=None):
    choice = get_method(name).choose_plan(ranking_inputs(model, num_removed, rows, config))
    json.dumps(choice.details)
    return choice


def test_the_registry():
    assert list(METHODS) == [
        "auber", "auber-query", "auber-key", "auber-l2", "auber-reverse", "surrogate", "greedy",
        "exhaustive", "random", "confidence", "michel", "fisher", "exchange", "voita", "original",
        "original+tuning",
    ]  # fmt: skip
    for name, method in METHODS.items():
        assert name == method.name
        assert (method.choose_layer is None) != (method.choose_plan is None)
    told = {name for name, method in METHODS.items() if not method.decides_number}
    assert told == {*RANKINGS, "exchange", "original", "original+tuning"}
    with pytest.raises(ConfigError, match=r"^Unknown method 'mihcel'. Did you mean 'michel'\?"):
        get_method("mihcel")


@pytest.mark.parametrize(
    ("preset", "settings", "given", "name", "reason"),
    [
        ("default", {}, None, "fisher", None),
        ("default", {"last.epochs": 1, "search.rewards": 9}, None, "fisher", None),
        ("default", {"size.keep": 0.5, "agent.episodes": 9}, "--heads", "fisher", None),
        ("default", {}, "--heads", "auber", "--heads"),
        ("default", {"agent.episodes": 9}, None, "auber", "agent.episodes"),
        ("default", {"search.prior_share": 0.5}, None, "auber", "search.prior_share"),
        ("default", {"protocol": "seen"}, None, "auber", "protocol"),
        ("paper", {}, None, "auber", None),
        ("reference", {"size.keep": 0.5}, "--heads", "auber", None),
    ],
)
def test_the_method_of_a_run_that_names_none(preset, settings, given, name, reason):
    config = make_config(preset, settings=settings).replace({"seed": 3})
    method, found = default_method(config, given)
    assert method.name == name
    assert (found is not None) == (reason is not None)
    assert reason is None or f" because {reason} is given (the usual one, fisher, " in found


@pytest.mark.parametrize("name", RANKINGS)
@pytest.mark.parametrize("labels", [1, 3, *TOKEN_KINDS])
def test_every_task_type_loses_the_number_asked_for(name, labels):
    if labels in TOKEN_KINDS:
        model = tiny_model(kind=labels, num_labels=num_labels(labels))
        rows = random_kind_rows(labels)
    else:
        model, rows = tiny_model(num_labels=labels), None
    assert choose(name, model, 5, rows=rows).plan.num_heads == 5


@pytest.mark.parametrize("units", ["heads", "neurons", "both"])
@pytest.mark.parametrize("name", TO_SIZE)
def test_a_target_size_is_reached(name, units):
    for model_type in ("bert", "modernbert"):
        model = tiny_model(model_type)
        config = CONFIG.replace({"size.keep": 0.75, "size.units": units})
        plan = choose(name, model, None, config).plan
        assert 0.6 < plan.cost(model, 24).multiply_adds <= 0.75
        assert bool(plan.heads) or units == "neurons"
        assert not (plan.heads and units == "neurons")
        assert not (plan.neurons and units == "heads")
        remove(model, plan)


@pytest.mark.parametrize("name", RANKINGS)
@pytest.mark.parametrize("model_type", ["bert", "mpnet"])
def test_a_pruned_model_keeps_a_head_in_each_layer_that_has_some(name, model_type):
    model = tiny_model(model_type)
    remove(model, {0: [1], 1: range(HEADS)}, allow_empty_layers=True)
    plan = choose(name, model, 5).plan
    assert {layer: len(heads) for layer, heads in plan.heads.items()} == {0: 2, 2: 3}
    assert 1 not in plan.heads[0]


@pytest.mark.parametrize("name", RANKINGS)
@pytest.mark.parametrize("training", [True, False])
def test_the_model_and_the_global_generator_are_not_changed(name, training):
    model = tiny_model().train(training)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    attention, random_state = model.config._attn_implementation, torch.get_rng_state()
    choose(name, model, 4)
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    assert model.training is training
    assert model.config._attn_implementation == attention
    assert all(each.requires_grad and each.grad is None for each in model.parameters())
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())
    assert torch.equal(torch.get_rng_state(), random_state)


@pytest.mark.parametrize("name", RANKINGS)
def test_a_seed_decides(name):
    first, again = (choose(name, tiny_model(), 6) for _ in range(2))
    assert first == again
    other = choose(name, tiny_model(), 6, CONFIG.replace({"seed": 1}))
    is_drawn = name in ("random", "voita")
    assert ((first.plan, first.details) != (other.plan, other.details)) == is_drawn


@pytest.mark.parametrize("name", [*RANKINGS[1:], "greedy", "exhaustive"])
def test_a_whole_run(name, tmp_path):
    model, tokenizer = small_start()
    config = CONFIG.replace({"first.when": "never", "layer.epochs": 0, "last.epochs": 0})
    heads = None if get_method(name).decides_number else 4
    run = tmp_path / "run"
    task = small_task()
    outcome = auber.prune(
        model, tokenizer, task=task, method=name, heads=heads, config=config, out=run
    )
    assert outcome.result["method"] == name
    assert all(len(gone) < HEADS for gone in outcome.plan.heads.values())
    computed = outcome.result["cost"]["rewards_computed"]
    if heads is not None:
        assert outcome.plan.num_heads == heads
        assert computed == 0
    else:
        assert len((run / "scores.jsonl").read_text().splitlines()) == computed > 0
    if name == "exhaustive":
        assert computed == LAYERS * (2**HEADS - 1)
