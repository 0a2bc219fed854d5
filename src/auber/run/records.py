"""What a run that goes on takes from files that it wrote before, checked: disks fail, and people edit.

Whatever the pipeline, its accounts and the command line look up in a stage's record or a result is checked here first, once.
"""

from __future__ import annotations

from auber.errors import RunError
from auber.models.plan import PruningPlan
from auber.run.fields import Fields
from auber.search.stages import BUDGET, PLAN, PRIOR, TIMING, layer_of


def check_stage(stage: str, read: Fields) -> None:
    """Raise `RunError`, or `PlanError`, unless the record of a finished stage says what is asked of it later."""
    read.get("seconds", float)
    for work in ("tuning", "scouting"):
        if read.has(work):
            read.get(work, dict)
            read.get(f"{work}.steps", int)
            read.get(f"{work}.seconds", float)
    if read.has("search"):
        for count in ("rewards_asked", "rewards_computed"):
            read.get(f"search.{count}", int)
        for part in ("reward_seconds", "seconds"):
            read.get(f"search.{part}", float)
    for count in ("gate_steps", "peak_gpu_bytes"):
        if read.has(count):
            read.get(count, int)
    if stage == "first":
        read.get("digest", str)
    elif stage == TIMING and read.get("timing", dict, optional=True) is not None:
        read.get("timing.percent_a_head", float)
    elif stage in (PRIOR, BUDGET):
        PruningPlan.from_json(read.get("plan", dict), f"{read.where}: plan")
    elif stage == PLAN:
        PruningPlan.from_json(read.get("removed", dict), f"{read.where}: removed")
    elif layer_of(stage) is not None:
        _check_layer(read)


def _check_layer(read: Fields) -> None:
    """Its heads, which only a stage that does no more than tune leaves out, and the best mask of every size."""
    if read.has("removed"):
        read.get("removed", list)
        read.items("removed", int)
    else:
        read.get("tuning", dict)
    if read.has("sizes") and not read.get("sizes", list):
        raise RunError(
            f"{read.where}: 'sizes' must have a mask, found none; it is damaged, {read.remedy}"
        )
    for entry in read.items("sizes", dict):
        size = Fields(f"{read.where}: sizes", entry)
        size.get("removed", list)
        size.items("removed", int)
        size.get("gain", float)


def check_result(read: Fields) -> None:
    """Raise `RunError` unless the result of a complete run says what is shown of it."""
    for key in ("model", "task", "metric", "protocol"):
        read.get(key, str)
    read.get("seed", int)
    for key in ("dev.score", "train.score", "gap", "cost.seconds.total"):
        read.get(key, float)
    for key in (
        "heads.removed",
        "heads.total",
        "cost.rewards_asked",
        "cost.rewards_computed",
        "cost.tuning_steps",
    ):
        read.get(key, int)
    read.get("dev.majority", float, optional=True)
    read.get("dev.one_class", bool, optional=True)
