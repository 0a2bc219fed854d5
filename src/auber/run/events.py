"""What a run reports while it works: `progress.json`, and lines of `events.jsonl`.

Events that only people read, such as messages and finished stages, are not declared.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from auber.run.records import MOST_HEADS, Share, require_heads
from auber.system.locks import Moment
from auber.system.records import Count, Name, Number, Record


class ProcessRecord(Record):
    """The process that works on a run."""

    id: Count
    started: Moment | None = None  # with `after_boot` distinguishes it from a later process
    after_boot: Moment | None = None
    host: Name | None = None
    command: Name | None = None
    folder: Name | None = None


class CurrentStage(Record):
    """The stage that a run is in."""

    name: Name
    began: Moment
    done: Count
    total: Count
    note: Name


class ProgressRecord(Record):
    """How far a run has come: `progress.json`."""

    time: Moment
    process: ProcessRecord
    share: Share | None = None
    seconds_left: Moment | None = None  # of the whole run
    stage: CurrentStage | None = None


class _Event(Record):
    time: Moment


class NumbersEvent(_Event):
    """Numbers by name, such as `layer-03/search/best_score`."""

    event: Literal["numbers"]
    step: Count
    values: dict[Name, Number]


class ProcessEvent(_Event):
    """A process started or resumed the run."""

    event: Literal["started", "resumed"]
    process: Count | None = None


class PlannedEvent(_Event):
    """The stages that will follow, and the shape of the model."""

    event: Literal["planned"]
    stages: Annotated[tuple[Name, ...], Field(max_length=MOST_HEADS)]
    layers: Count
    heads_per_layer: Count

    @model_validator(mode="after")
    def _check_total(self) -> PlannedEvent:
        require_heads(self.layers, self.heads_per_layer)
        return self


class StoppedEvent(_Event):
    """The run was stopped by an error."""

    event: Literal["stopped"]
    error: str


Event = NumbersEvent | ProcessEvent | PlannedEvent | StoppedEvent
_EVENT: TypeAdapter[Event] = TypeAdapter(
    Annotated[Event, Field(discriminator="event")], config={"defer_build": True}
)


def parse_event(line: str | bytes) -> Event | None:
    """Return the event in a line of `events.jsonl`, or None if the line is damaged or unknown."""
    try:
        return _EVENT.validate_json(line)
    except ValidationError:
        return None
