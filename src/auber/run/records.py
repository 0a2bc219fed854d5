"""What the JSON files of a run's folder have in common, and the records of the small ones.

`stage_record`, `result_record` and `events` declare the others. Every reader uses them: resuming,
reports, `auber watch` and studies. Importing them loads neither torch nor the pipeline. Keys that
only some stages or versions write are optional.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, PlainSerializer, PlainValidator

from auber.errors import PlanError
from auber.models.plan import MOST_NEURONS, PruningPlan
from auber.system.records import Count, Name, Number, Record

# Of a model in a file; larger numbers are damage, and a table of them would fill the memory.
MOST_HEADS = 65_536

Heads = Annotated[tuple[Count, ...], Field(max_length=MOST_HEADS)]


def _parse_plan(data: Any) -> PruningPlan:
    try:
        plan = data if isinstance(data, PruningPlan) else PruningPlan.from_json(data)
        plan.check(MOST_HEADS, MOST_HEADS, MOST_NEURONS, allow_empty_layers=True)
    except PlanError as error:
        raise ValueError(f"must be a plan ({error})") from error
    return plan


Plan = Annotated[PruningPlan, PlainValidator(_parse_plan), PlainSerializer(PruningPlan.to_json)]
Share = Annotated[float, Field(ge=0, le=1)]


def require_heads(layers: int, heads_per_layer: int) -> None:
    """Raise `ValueError` for a model with more heads than a file may describe."""
    if layers * heads_per_layer > MOST_HEADS:
        raise ValueError(f"must have at most {MOST_HEADS} heads")


class UpgradeRecord(Record):
    """A change of versions during a run."""

    changed: dict[Name, tuple[str | None, str]]
    after: tuple[Name, ...]  # stages finished before


class RunIdentity(Record):
    """What a run is: `run.json`. A run resumes only as the same run."""

    kind: Name
    model: Name
    weights: str | None = None  # digest of the weights it started from
    origin: str | None = None  # digest of the pretrained weights that fold models start from
    task: Name
    metric: Name | None = None
    data: str | None = None
    method: Name
    heads: Count | None = None
    tuned_layers: tuple[Count, ...] | None = None
    device_type: Name | None = None
    computed_in: Name | None = None
    computed_on_threads: Count | None = None
    processes: Count = 1
    versions: dict[Name, Name] = Field(default_factory=dict)
    upgrades: tuple[UpgradeRecord, ...] = ()
    source: str | None = None  # folder or hub name of the model


class SettledRecord(Record):
    """`settled.json`: numbers that a run measured by the clock, by name."""

    numbers: dict[Name, Count]


class ScoreLine(Record):
    """One line of `scores.jsonl`."""

    key: str
    layer: Count
    removed: Heads
    score: Number
