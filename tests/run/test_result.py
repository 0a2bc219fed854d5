"""The costs in a result are summed over the stages."""

from __future__ import annotations

import pytest

from auber.run.finished import find_tuned_layers
from auber.run.result import describe_cost
from auber.run.result_record import TIME_PARTS
from auber.run.stage_record import StageRecord
from auber.search.stages import PLAN, PRIOR, REWIND, TIMING, layer_stage
from auber.system.records import parse

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


def records(stages):
    return {name: parse(StageRecord, stage, name, "") for name, stage in stages.items()}


def cost_of(stages, evaluation=0.5):
    return describe_cost(records(stages), evaluation)


def test_costs_are_summed_over_the_stages():
    assert cost_of(STAGES) == {
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
def test_a_ranking_is_counted_as_choosing(stage):
    cost = cost_of({**STAGES, stage: {"seconds": 2.5, "gate_steps": 70}})
    assert (cost["gate_steps"], cost["tuning_steps"]) == (70, 13)
    assert (cost["seconds"]["choosing"], cost["seconds"]["total"]) == (2.5, 16.75)
    assert "gate_steps" not in cost_of({stage: {"seconds": 2.5}})


def test_the_first_tuning_counts_as_search_if_the_plan_is_applied_to_the_pretrained_model():
    rewind = {"seconds": 4.5, "tuning": {"steps": 7, "seconds": 4.25}}
    cost = cost_of({**STAGES, REWIND: rewind})
    seconds = cost["seconds"]
    assert (seconds["rewind"], seconds["first"], seconds["scouts"]) == (4.25, 0.0, 4.0)
    assert cost["tuning_steps"] == 7 + 2 + 3
    # The model may have been fine-tuned elsewhere.
    assert cost_of({**STAGES, "first": {"seconds": 0.5}, REWIND: rewind})["tuning_steps"] == 12


def test_every_part_of_the_seconds_is_in_the_table():
    stages = {
        **STAGES,
        TIMING: {"seconds": 1.0},
        PRIOR: {"seconds": 2.5},
        "scout-0": {"seconds": 9.0, "scouting": {"tunings": 1, "steps": 5, "seconds": 8.0}},
        REWIND: {"seconds": 4.5, "tuning": {"steps": 8, "seconds": 4.25}},
    }
    assert cost_of(stages)["seconds"].keys() - {"total"} == TIME_PARTS.keys()


def test_only_layers_with_a_tuning_were_tuned_after():
    assert find_tuned_layers(records(STAGES)) == [2]
    tuned = {layer_stage(layer): STAGES["layer-02"] for layer in (11, 3)}
    assert find_tuned_layers(records(tuned)) == [11, 3]
