"""The result of a run, made from the records of its stages.

Everything is summed over the stages, so that a resumed run counts the same as an unbroken one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from auber.models.encoders.base import Encoder
from auber.run import provenance
from auber.run.records import FoldTunings, StageRecord, TuningRecord, UpgradeRecord
from auber.run.request import Request
from auber.search.stages import PLAN, PRIOR, REWIND, TIMING, tuned_layer_of
from auber.training.evaluation import Scores

Stages = Mapping[str, StageRecord]  # the finished stages by name, in their order

_NOTHING = TuningRecord(steps=0, seconds=0.0)


def describe_result(
    request: Request,
    encoder: Encoder,
    stages: Stages,
    *,
    train: Scores,
    dev: Scores,
    evaluation_seconds: float,
    upgrades: tuple[UpgradeRecord, ...],
) -> dict[str, Any]:
    """Return the content of `result.json` without the digest of the weights."""
    task, config, plan = request.task, request.config, encoder.removed
    command = request.command
    if command is not None:
        command = provenance.without_folders(command) if command.isprintable() else None
    found = provenance.describe(request.hardware)
    if upgrades:
        found["upgrades"] = [upgrade.to_json() for upgrade in upgrades]
    return {
        "format": 1,
        "kind": request.kind,
        "command": command,
        "model": request.start.name,
        "method": request.method.name,
        "task": task.name,
        "labels": task.num_labels,
        "rows": {"train": len(task.train), "dev": len(task.dev)},
        "metric": task.metric,
        "protocol": config.protocol,
        "seed": config.seed,
        "dev": {**dev.to_json(), "majority": task.majority_share},
        "train": train.to_json(),
        "gap": train.score - dev.score,
        "heads": {
            "removed": plan.num_heads,
            "total": encoder.num_layers * encoder.num_heads,
            "layers": encoder.num_layers,
            "per_layer": encoder.num_heads,
        },
        "neurons": {
            "removed": plan.num_neurons,
            "total": encoder.num_layers * encoder.num_neurons,
            "per_layer": encoder.num_neurons,
        },
        "remaining": _describe_size(encoder, config.max_length),
        "plan": plan.to_json(),
        "tuned_layers": find_tuned_layers(stages),
        "start": stages["first"].digest,
        "cost": describe_cost(stages, evaluation_seconds),
        "config": config.flat(),
        "data": task.content_hash,
        "provenance": found,
    }


def _describe_size(encoder: Encoder, max_length: int) -> dict[str, float]:
    length = min(max_length, encoder.num_positions)
    cost = encoder.removed.cost(encoder.model, length)
    shares = {"multiply_adds": cost.multiply_adds, "parameters": cost.parameters}
    return {**{name: round(share, 6) for name, share in shares.items()}, "length": length}


def find_tuned_layers(stages: Stages) -> list[int]:
    """Return the layers after which the model was tuned, in order."""
    layers = [tuned_layer_of(name) for name, stage in stages.items() if stage.tuning]
    return [layer for layer in layers if layer is not None]


def describe_cost(stages: Stages, evaluation_seconds: float) -> dict[str, Any]:
    """Return what the run took, with the seconds by `TIME_PARTS`; fold models count apart.

    `choosing` is the time of a ranking, be it the method or the prior of a search.
    """
    searches = [stage.search for stage in stages.values() if stage.search]
    tunings = {name: stage.tuning for name, stage in stages.items() if stage.tuning}
    fold_models: list[TuningRecord | FoldTunings] = [
        stage.scouting for stage in stages.values() if stage.scouting
    ]
    if REWIND in tunings and "first" in tunings:
        # The model tuned first only served the search; the pruned one is tuned in `rewind`.
        fold_models.append(tunings.pop("first"))
    after_layers = [tuning for name, tuning in tunings.items() if tuned_layer_of(name) is not None]
    rankings = [stages[name] for name in (PLAN, PRIOR) if name in stages]
    rewards = sum(search.reward_seconds for search in searches)
    seconds = {
        "first": tunings.get("first", _NOTHING).seconds,
        "timing": stages[TIMING].seconds if TIMING in stages else None,
        "rewards": rewards,
        "agent": sum(search.seconds for search in searches) - rewards,
        "choosing": sum(stage.seconds for stage in rankings) if rankings else None,
        "scouts": sum(each.seconds for each in fold_models) if fold_models else None,
        "rewind": tunings[REWIND].seconds if REWIND in tunings else None,
        "layer_tuning": sum(tuning.seconds for tuning in after_layers),
        "last": tunings.get("last", _NOTHING).seconds,
        "evaluation": evaluation_seconds,
        "total": sum(stage.seconds for stage in stages.values()) + evaluation_seconds,
    }
    optional = {
        "scout_steps": sum(each.steps for each in fold_models) if fold_models else None,
        "gate_steps": sum(stage.gate_steps for stage in rankings) or None,
        "peak_gpu_bytes": max(
            (stage.peak_gpu_bytes for stage in stages.values() if stage.peak_gpu_bytes),
            default=None,
        ),
    }
    return {
        "rewards_asked": sum(search.rewards_asked for search in searches),
        "rewards_computed": sum(search.rewards_computed for search in searches),
        "tuning_steps": sum(tuning.steps for tuning in tunings.values()),
        **{key: value for key, value in optional.items() if value is not None},
        "seconds": {
            key: round(float(value), 3) for key, value in seconds.items() if value is not None
        },
    }
