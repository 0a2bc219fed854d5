"""What a run tells of itself in numbers, out of the records its stages left.

Everything is summed over the stages, so that a run that was cut counts the same as an unbroken one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from auber.models.encoders.base import Encoder
from auber.run import provenance
from auber.run.job import Job
from auber.search.stages import PLAN, PRIOR, REWIND, TIMING, tuned_layer_of
from auber.training.evaluation import Scores


@dataclass(frozen=True)
class TimePart:
    """A part of a run's time."""

    words: str  # what a reader is told it is
    work: str  # parts of one kind of work are summed up where a run's time is told in short


# What the seconds of `describe_cost` are counted under beside their total, in the order they are spent in. Whatever else a run
# takes is reading, copying and digesting weights, and writing its folder.
TIME_PARTS = {
    "first": TimePart("first tuning", "tuning"),
    "timing": TimePart("timing heads", "timing"),
    "choosing": TimePart("choosing heads", "choosing"),
    "scouts": TimePart("scouts", "tuning"),
    "rewards": TimePart("rewards", "rewards"),
    "agent": TimePart("agent", "agent"),
    "rewind": TimePart("tuning the pruned origin", "tuning"),
    "layer_tuning": TimePart("tuning after layers", "tuning"),
    "last": TimePart("last tuning", "tuning"),
    "evaluation": TimePart("evaluation", "evaluation"),
}

Stages = Mapping[
    str, Mapping[str, Any]
]  # the record of each finished stage by its name, in the order they were done


def tuned_layers(stages: Stages) -> list[int]:
    """The layers after which the model was tuned, in order."""
    layers = [tuned_layer_of(name) for name, info in stages.items() if "tuning" in info]
    return [layer for layer in layers if layer is not None]


def layer_numbers(info: Mapping[str, Any]) -> dict[str, float]:
    """What a listener is told of a searched layer."""
    search = info["search"]
    names = (
        "rewards_asked",
        "rewards_computed",
        "seconds",
        "given_score",
        "unpruned_score",
        "best_score",
    )
    return {
        "layers/removed": len(info["removed"]),
        **{f"layers/{name}": search[name] for name in names if name in search},
    }


def result_numbers(train: Scores, dev: Scores, num_removed: int) -> dict[str, float]:
    """What a listener is told of the result."""
    return {
        "result/dev": dev.score,
        "result/train": train.score,
        "result/gap": train.score - dev.score,
        "result/heads_removed": num_removed,
    }


def describe_cost(stages: Stages, evaluation_seconds: float) -> dict[str, Any]:
    """What the run took; scouts count apart.

    Choosing is what a method took that names all heads at once, be it the run's own or the one that the search begins from. The
    parts of the seconds are those of `TIME_PARTS`.
    """
    searches = [info["search"] for info in stages.values() if "search" in info]
    tunings = {name: info["tuning"] for name, info in stages.items() if "tuning" in info}
    scouts = [info["scouting"] for info in stages.values() if "scouting" in info]
    if (
        REWIND in tunings
    ):  # the start that was tuned before is not what came out: it told the agent of its heads
        scouts += [tunings.pop("first")] if "first" in tunings else []
    after_layers = [tuning for name, tuning in tunings.items() if tuned_layer_of(name) is not None]
    choices = [stages[name] for name in (PLAN, PRIOR) if name in stages]
    gate_steps = sum(choice.get("gate_steps", 0) for choice in choices)
    rewards = sum(search["reward_seconds"] for search in searches)
    seconds = {
        "first": tunings.get("first", {}).get("seconds", 0.0),
        **({"timing": stages[TIMING]["seconds"]} if TIMING in stages else {}),
        "rewards": round(rewards, 3),
        "agent": round(sum(search["seconds"] for search in searches) - rewards, 3),
        **({"choosing": round(sum(choice["seconds"] for choice in choices), 3)} if choices else {}),
        **({"scouts": round(sum(tuning["seconds"] for tuning in scouts), 3)} if scouts else {}),
        **({"rewind": tunings[REWIND]["seconds"]} if REWIND in tunings else {}),
        "layer_tuning": round(sum(tuning["seconds"] for tuning in after_layers), 3),
        "last": tunings.get("last", {}).get("seconds", 0.0),
        "evaluation": round(evaluation_seconds, 3),
        "total": round(sum(info["seconds"] for info in stages.values()) + evaluation_seconds, 3),
    }
    peaks = [info["peak_gpu_bytes"] for info in stages.values() if "peak_gpu_bytes" in info]
    return {
        "rewards_asked": sum(search["rewards_asked"] for search in searches),
        "rewards_computed": sum(search["rewards_computed"] for search in searches),
        "tuning_steps": sum(tuning["steps"] for tuning in tunings.values()),
        **({"scout_steps": sum(tuning["steps"] for tuning in scouts)} if scouts else {}),
        **({"gate_steps": gate_steps} if gate_steps else {}),
        **({"peak_gpu_bytes": max(peaks)} if peaks else {}),
        "seconds": seconds,
    }


def describe_result(
    job: Job,
    kind: str,
    encoder: Encoder,
    stages: Stages,
    *,
    train: Scores,
    dev: Scores,
    evaluation_seconds: float,
    upgrades: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """What `result.json` says of a run of this kind; `upgrades` are the changes of versions on the way."""
    task, config, plan = job.task, job.config, encoder.removed
    return {
        "format": 1,
        "kind": kind,
        "command": None if job.command is None else provenance.without_folders(job.command),
        "model": job.model_name,
        "method": job.method.name,
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
            "removed": plan.num_removed,
            "total": encoder.num_layers * encoder.num_heads,
            "layers": encoder.num_layers,
            "per_layer": encoder.num_heads,
        },
        "plan": plan.to_json(),
        "tuned_layers": tuned_layers(stages),
        "start": stages["first"]["digest"],
        "cost": describe_cost(stages, evaluation_seconds),
        "config": config.flat(),
        "data": task.content_hash,
        "provenance": {
            **provenance.describe(job.hardware),
            **({"upgrades": upgrades} if upgrades else {}),
        },
    }
