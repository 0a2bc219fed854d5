"""What the finished stages of a run decided, read from their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from auber.models.plan import PruningPlan
from auber.run.stage_record import StageRecord
from auber.search.stages import BUDGET, PLAN, layer_of, tuned_layer_of

Stages = Mapping[str, StageRecord]  # the finished stages by name, in their order


def find_plan(stages: Stages, name: str) -> PruningPlan:
    """Return the plan of a stage; it is empty if the stage is not finished."""
    if name not in stages:
        return PruningPlan()
    stage = stages[name]
    plan = stage.removed if isinstance(stage.removed, PruningPlan) else stage.plan
    return plan or PruningPlan()


def find_decided(stages: Stages) -> PruningPlan:
    """Return all units that the stages decided to remove."""
    for name in (BUDGET, PLAN):
        if name in stages:
            return find_plan(stages, name)
    return PruningPlan(find_decided_layers(stages))


def find_decided_layers(stages: Stages) -> dict[int, Sequence[int]]:
    """Return the removed heads of each decided layer, also if there are none."""
    found = {layer_of(name): stage.removed for name, stage in stages.items()}
    return {
        layer: removed
        for layer, removed in found.items()
        if layer is not None and isinstance(removed, tuple)
    }


def find_tuned_layers(stages: Stages) -> list[int]:
    """Return the layers after which the model was tuned, in order."""
    layers = [tuned_layer_of(name) for name, stage in stages.items() if stage.tuning]
    return [layer for layer in layers if layer is not None]
