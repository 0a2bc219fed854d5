"""The result of a run, made from the records of its stages.

Everything is summed over the stages, so that a resumed run counts the same as an unbroken one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from auber.models.encoders import encoder_of
from auber.models.encoders.base import Encoder
from auber.run import provenance
from auber.run.evaluation import Evaluated
from auber.run.finished import Stages, find_tuned_layers
from auber.run.records import UpgradeRecord
from auber.run.request import Request
from auber.run.stage_record import FoldTunings, HeldOutRecord, StageRecord, TuningRecord
from auber.search.stages import (
    ANSWERS,
    LAST,
    PLAN,
    PRIOR,
    RATE,
    REWIND,
    STEP,
    TIMING,
    is_of,
    size_stage,
    tuned_layer_of,
)


def describe_result(
    request: Request,
    models: Sequence[Evaluated],
    before: Evaluated | None,
    stages: Stages,
    *,
    evaluation_seconds: float,
    upgrades: tuple[UpgradeRecord, ...],
) -> dict[str, Any]:
    """Return the content of `result.json` without the digests of weights."""
    task, config, command = request.task, request.config, request.command
    chosen, learned = choose_size(models, stages), stages["first"].learned
    sizes: dict[str, Any] = {}
    if request.sizes:
        sizes["chosen"] = f"{chosen.share:g}"
        sizes["sizes"] = [_describe_size_model(request, each, stages) for each in models]
    if command is not None:
        command = provenance.without_folders(command) if command.isprintable() else None
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
        **_given(answered=task.is_answered or None),
        "protocol": config.protocol,
        "seed": config.seed,
        **_describe_model(request, chosen),
        **_given(before=None if before is None else _compare(request, before)),
        **sizes,
        "tuned_layers": find_tuned_layers(stages),
        "start": stages["first"].digest,
        **_given(learned=None if learned is None else learned.to_json()),
        **_given(learning_rate=stages[RATE].rate if RATE in stages else None),
        "cost": describe_cost(stages, evaluation_seconds),
        "config": config.flat(),
        "data": task.content_hash,
        "provenance": {
            **provenance.describe(request.hardware),
            **_given(upgrades=[upgrade.to_json() for upgrade in upgrades] or None),
        },
    }


def _given(**values: Any) -> dict[str, Any]:
    """Return the values that are not None: the others are no keys of the result."""
    return {name: value for name, value in values.items() if value is not None}


def choose_size(models: Sequence[Evaluated], stages: Stages) -> Evaluated:
    """Return the model of a run: the smallest, or the smallest that is within the tolerance."""
    within = [
        each
        for each in models
        if (held_out := _held_out(each, stages)) is None or held_out.is_within
    ]
    return within[-1]


def _held_out(evaluated: Evaluated, stages: Stages) -> HeldOutRecord | None:
    return None if evaluated.share is None else stages[size_stage(LAST, evaluated.share)].held_out


def _describe_model(request: Request, evaluated: Evaluated) -> dict[str, Any]:
    """Return what a `ModelRecord` has, without the digest of the weights."""
    encoder, dev, train = encoder_of(evaluated.model), evaluated.dev, evaluated.train
    assert train is not None
    plan, task = encoder.removed, request.task
    return {
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
        "remaining": _describe_size(encoder, request.config.max_length),
        **_given(
            after=None if evaluated.milliseconds is None else _compare(request, evaluated),
            agreement=evaluated.agreement,
        ),
        "plan": plan.to_json(),
    }


def _describe_size_model(request: Request, evaluated: Evaluated, stages: Stages) -> dict[str, Any]:
    share, held_out = evaluated.share, _held_out(evaluated, stages)
    assert share is not None
    kinds = size_stage(STEP, share), size_stage(LAST, share)
    tunings = [stage.tuning for name, stage in stages.items() if is_of(name, *kinds)]
    *before, tuning = [each for each in tunings if each is not None]
    totals = {
        "steps": sum(each.steps for each in (*before, tuning)),
        "seconds": round(sum(each.seconds for each in (*before, tuning)), 3),
    }
    return {
        "keep": share,
        "name": f"{share:g}",
        **_describe_model(request, evaluated),
        "tuning": {**tuning.to_json(), **totals},
        **_given(held_out=None if held_out is None else held_out.to_json()),
    }


def _compare(request: Request, evaluated: Evaluated) -> dict[str, Any]:
    """Return what a `ComparedRecord` has."""
    model, dev = evaluated.model, evaluated.dev
    return {
        "score": dev.score,
        "rows": dev.rows,
        "multiply_adds": _describe_size(encoder_of(model), request.config.max_length)[
            "multiply_adds"
        ],
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "milliseconds": round(evaluated.milliseconds or 0.0, 3),
        "tokens": evaluated.tokens,
    }


def _describe_size(encoder: Encoder, max_length: int) -> dict[str, float]:
    length = min(max_length, encoder.num_positions)
    cost = encoder.removed.cost(encoder.model, length)
    shares = {"multiply_adds": cost.multiply_adds, "parameters": cost.parameters}
    return {**{name: round(share, 6) for name, share in shares.items()}, "length": length}


def _choosing_seconds(stage: StageRecord) -> float:
    return stage.seconds - (stage.tuning.seconds if stage.tuning else 0.0)


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
    rankings = [stage for name, stage in stages.items() if is_of(name, PRIOR, PLAN, STEP)]

    def tuning_seconds(*kinds: str) -> float:
        return sum(each.seconds for name, each in tunings.items() if is_of(name, *kinds))

    rewards = sum(search.reward_seconds for search in searches)
    seconds = _given(
        # with the trials that choose its learning rate
        first=tuning_seconds("first") + (stages[RATE].seconds if RATE in stages else 0.0),
        timing=stages[TIMING].seconds if TIMING in stages else None,
        rewards=rewards,
        agent=sum(search.seconds for search in searches) - rewards,
        choosing=sum(map(_choosing_seconds, rankings)) if rankings else None,
        scouts=sum(each.seconds for each in fold_models) if fold_models else None,
        rewind=tuning_seconds(REWIND) if REWIND in tunings else None,
        layer_tuning=sum(
            each.seconds for name, each in tunings.items() if tuned_layer_of(name) is not None
        ),
        last=tuning_seconds(LAST, STEP),
        # with the answers of the unpruned model
        evaluation=evaluation_seconds + (stages[ANSWERS].seconds if ANSWERS in stages else 0.0),
        total=sum(stage.seconds for stage in stages.values()) + evaluation_seconds,
    )
    return {
        "rewards_asked": sum(search.rewards_asked for search in searches),
        "rewards_computed": sum(search.rewards_computed for search in searches),
        "tuning_steps": sum(tuning.steps for tuning in tunings.values()),
        **_given(
            scout_steps=sum(each.steps for each in fold_models) if fold_models else None,
            gate_steps=sum(stage.gate_steps for stage in rankings) or None,
            peak_gpu_bytes=max((stage.peak_gpu_bytes or 0 for stage in stages.values()), default=0)
            or None,
        ),
        "seconds": {key: round(float(value), 3) for key, value in seconds.items()},
    }
