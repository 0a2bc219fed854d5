from __future__ import annotations

import pytest

from auber.run.accounts import TIME_PARTS, describe_cost, layer_numbers, tuned_layers
from auber.search.stages import PLAN, PRIOR, REWIND, TIMING, layer_stage

SEARCHED = {"seconds": 3.0, "reward_seconds": 2.0, "rewards_asked": 9, "rewards_computed": 5}
STAGES = {
    "first": {"seconds": 4.5, "tuning": {"steps": 8, "seconds": 4.0}, "peak_gpu_bytes": 7},
    "layer-00": {"seconds": 3.25, "removed": [], "search": SEARCHED},
    "layer-02": {
        "seconds": 5.0,
        "removed": [1],
        "search": {**SEARCHED, "rewards_computed": 1, "best_score": 0.5},
        "tuning": {"steps": 2, "seconds": 1.5},
        "peak_gpu_bytes": 9,
    },
    "last": {"seconds": 1.0, "tuning": {"steps": 3, "seconds": 0.75}},
}


def test_costs_are_summed_over_the_stages():
    assert describe_cost(STAGES, 0.5) == {
        "rewards_asked": 18,
        "rewards_computed": 6,
        "tuning_steps": 13,
        "peak_gpu_bytes": 9,
        "seconds": {
            "first": 4.0,
            "rewards": 4.0,
            "agent": 2.0,
            "layer_tuning": 1.5,
            "last": 0.75,
            "evaluation": 0.5,
            "total": 14.25,
        },
    }


@pytest.mark.parametrize("stage", [PLAN, PRIOR])
def test_choosing_all_heads_at_once_is_counted(stage):
    cost = describe_cost({**STAGES, stage: {"seconds": 2.5, "gate_steps": 70}}, 0.5)
    assert cost["gate_steps"] == 70
    assert cost["seconds"]["choosing"] == 2.5
    assert cost["seconds"]["total"] == 16.75
    assert cost["tuning_steps"] == 13, "no weight moves by them"
    assert "gate_steps" not in describe_cost({stage: {"seconds": 2.5}}, 0.0)


def test_a_plan_carried_out_on_the_origin_is_tuned_apart_from_the_start():
    cost = describe_cost(
        {**STAGES, REWIND: {"seconds": 4.5, "tuning": {"steps": 7, "seconds": 4.25}}}, 0.5
    )
    assert (cost["seconds"]["rewind"], cost["seconds"]["first"], cost["seconds"]["scouts"]) == (
        4.25,
        0.0,
        4.0,
    )
    assert cost["tuning_steps"] == 7 + 2 + 3, "the start's are no part of what came out"


def test_every_part_of_the_seconds_is_in_the_table():
    stages = {
        **STAGES,
        TIMING: {"seconds": 1.0},
        PRIOR: {"seconds": 2.5},
        "scout-0": {"seconds": 9.0, "scouting": {"steps": 5, "seconds": 8.0}},
        REWIND: {"seconds": 4.5, "tuning": {"steps": 8, "seconds": 4.25}},
    }
    assert describe_cost(stages, 0.5)["seconds"].keys() - {"total"} == TIME_PARTS.keys()


def test_a_run_without_search_or_tunings_costs_its_evaluation():
    cost = describe_cost({"first": {"seconds": 0.0}}, 0.5)
    assert cost["seconds"]["total"] == cost["seconds"]["evaluation"] == 0.5
    assert {name: cost[name] for name in cost if name != "seconds"} == {
        "rewards_asked": 0,
        "rewards_computed": 0,
        "tuning_steps": 0,
    }


def test_only_layers_with_a_tuning_were_tuned_after():
    assert tuned_layers(STAGES) == [2]
    assert tuned_layers({layer_stage(layer): {"tuning": {}} for layer in (11, 3)}) == [11, 3]


def test_a_searched_layer_tells_what_its_method_knows():
    assert layer_numbers(STAGES["layer-02"]) == {
        "layers/removed": 1,
        "layers/rewards_asked": 9,
        "layers/rewards_computed": 1,
        "layers/seconds": 3.0,
        "layers/best_score": 0.5,
    }
    begun = {**SEARCHED, "given_score": 0.25, "unpruned_score": 0.375}
    numbers = layer_numbers({"removed": [1], "search": begun})
    assert (numbers["layers/given_score"], numbers["layers/unpruned_score"]) == (0.25, 0.375)
