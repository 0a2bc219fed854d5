"""The JSON files of a run's folder, declared as records.

Every reader uses them: resuming, reports, `auber watch` and studies. Importing this module loads
neither torch nor the pipeline. Keys that only some stages or versions write are optional.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from auber.errors import RunError
from auber.models.plan import PruningPlan
from auber.run.fields import Fields
from auber.search.stages import BUDGET, PLAN, PRIOR, TIMING, layer_of
from auber.system.locks import Moment
from auber.system.records import Count, Name, Number, Record, Whole

MOST_HEADS = (
    65_536  # of a model in a file; larger numbers are damage, and a table of them fills memory
)

Index = Annotated[str, Field(pattern=r"^[0-9]{1,6}$")]  # a layer or a head as a key of an object
Heads = Annotated[tuple[Count, ...], Field(max_length=MOST_HEADS)]
HeadsByLayer = Annotated[dict[Index, Heads], Field(max_length=MOST_HEADS)]
ScoresByHead = dict[Index, dict[Index, Number]]
Share = Annotated[float, Field(ge=0, le=1)]
Point = tuple[Count, Number]


class TuningRecord(Record):
    """What one tuning did."""

    steps: Count
    seconds: Number
    stopped_early: bool = False
    best_step: Count | None = None
    watched: tuple[tuple[Count, Number, Number], ...] = ()  # (step, score, loss)
    micro_batch: Count | None = None


class FoldTunings(Record):
    """All tunings of one fold model."""

    tunings: Count
    steps: Count
    seconds: Number


class SearchRecord(Record):
    """How one layer was searched. Scores are the metric on the reward set."""

    seconds: Number
    reward_seconds: Number
    rewards_asked: Count
    rewards_computed: Count
    reward_rows: Count | None = None
    present: Heads = ()  # heads of the layer before the search
    given: Heads = ()  # heads that the plan it started from removes
    change_cost: Number = 0.0  # points that a head must gain to depart from that plan
    time_pay: Number = 0.0  # points for the time that each removed head saves
    given_score: Number | None = None  # of what the search started from
    unpruned_score: Number | None = None
    best: Heads = ()
    best_score: Number | None = None
    curve: tuple[Point, ...] = ()  # (masks scored, best score) at each improvement
    # The DQN player
    state: tuple[Number, ...] = ()
    rollout: Heads = ()
    rollout_score: Number | None = None
    q_values: tuple[Number, ...] = ()  # of removing each present head first; the last is stopping
    updates: Count | None = None
    # The greedy player
    path: tuple[Any, ...] = ()
    # The exhaustive player
    heads: Heads = ()
    states: dict[str, dict[str, tuple[Number, ...]]] | None = None
    scores: tuple[Number, ...] = ()


class SizeRecord(Record):
    """The best mask of one size."""

    removed: Heads
    score: Number
    gain: Number


class RatioRecord(Record):
    """A ratio of times with its 95 % interval."""

    median: Number
    low: Number
    high: Number


class TimingRecord(Record):
    """How much of a model's time one head takes."""

    percent_a_head: Number
    heads: Count
    rows: Count
    length: Count
    ratio: RatioRecord


class GateTrial(Record):
    """The gates under one penalty (`voita`)."""

    penalty: Number
    closed: Count
    expected_open: Number
    loss: Number


class StageRecord(Record):
    """A finished stage: `stages/NAME.json`, and the event that reports it."""

    seconds: Number
    weights: bool = False  # whether the weights at its end were stored
    model_sha256: str | None = None  # of those weights
    peak_gpu_bytes: Count | None = None
    digest: str | None = None  # of the fine-tuned weights, in stage `first`
    removed: Heads | HeadsByLayer | None = None
    search: SearchRecord | None = None
    sizes: Annotated[tuple[SizeRecord, ...], Field(min_length=1)] | None = None
    tuning: TuningRecord | None = None
    scouting: FoldTunings | None = None
    timing: TimingRecord | None = None
    plan: HeadsByLayer | None = None
    gain: Number | None = None
    # Rankings
    draw: Count | None = None
    importance: ScoresByHead | None = None
    confidence: ScoresByHead | None = None
    gates: ScoresByHead | None = None
    penalty: Number | None = None
    trials: tuple[GateTrial, ...] = ()
    gate_steps: Count = 0

    @property
    def ranking(self) -> tuple[str, ScoresByHead] | None:
        """Return the name and the values of the scores that heads were ranked by."""
        for name in ("importance", "confidence", "gates"):
            values = getattr(self, name)
            if values is not None:
                return name, values
        return None


class ScoreRecord(Record):
    """How a model does on some rows."""

    score: Number
    loss: Number | None = None
    rows: Count | None = None
    one_class: bool | None = None  # every row got the same answer
    majority: Number | None = None  # share of the most frequent class


class RowCounts(Record):
    """The sizes of the train and dev sets."""

    train: Count
    dev: Count


class HeadCounts(Record):
    """How many heads a model has and lost."""

    removed: Count
    total: Count
    layers: Annotated[int, Field(ge=1, le=MOST_HEADS)]
    per_layer: Annotated[int, Field(ge=1, le=MOST_HEADS)]

    @model_validator(mode="after")
    def _check_total(self) -> HeadCounts:
        if self.layers * self.per_layer > MOST_HEADS:
            raise ValueError(f"must have at most {MOST_HEADS} heads")
        return self


class CostRecord(Record):
    """What a run took."""

    rewards_asked: Count
    rewards_computed: Count
    tuning_steps: Count
    scout_steps: Count = 0  # tuning steps of fold models
    gate_steps: Count = 0
    peak_gpu_bytes: Count | None = None
    seconds: dict[Name, Number]  # by what they were spent on, and their `total`

    @model_validator(mode="after")
    def _require_total(self) -> CostRecord:
        if "total" not in self.seconds:
            raise ValueError("must have the seconds in total")
        return self


class CommitRecord(Record):
    """The commit of the source tree, and whether the tree differed from it."""

    id: Name
    dirty: bool


class UpgradeRecord(Record):
    """A change of versions during a run."""

    changed: dict[Name, tuple[str | None, str]]
    after: tuple[Name, ...]  # stages finished before


class ProvenanceRecord(Record):
    """The environment that a result was computed in."""

    versions: dict[Name, Name]
    commit: CommitRecord | None
    device: Name
    precision: Name
    threads: Count
    processes: Count = 1
    upgrades: tuple[UpgradeRecord, ...] = ()


class ResultRecord(Record):
    """The result of a finished run: `result.json`."""

    format: Literal[1]
    kind: Literal["prune", "finetune"]
    command: Name | None
    model: Name
    method: Name
    task: Name
    labels: Count
    rows: RowCounts
    metric: Name
    protocol: Name
    seed: Whole
    dev: ScoreRecord
    train: ScoreRecord
    gap: Number
    heads: HeadCounts
    plan: HeadsByLayer
    tuned_layers: tuple[Count, ...]
    start: Name  # digest of the fine-tuned weights
    cost: CostRecord
    config: dict[Name, Any]
    data: Name  # digest of all rows
    provenance: ProvenanceRecord
    model_sha256: str | None = None


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
        if self.layers * self.heads_per_layer > MOST_HEADS:
            raise ValueError(f"must have at most {MOST_HEADS} heads")
        return self


class StageEvent(StageRecord, _Event):
    """A stage was finished."""

    event: Literal["stage"]
    stage: Name


class DevEvent(_Event):
    """The dev set was evaluated."""

    event: Literal["dev_evaluation"]
    score: Number
    rows: Count


class StoppedEvent(_Event):
    """The run was stopped by an error."""

    event: Literal["stopped"]
    error: str


class MessageEvent(_Event):
    """A message to the user."""

    event: Literal["said"]
    text: str


class UpgradedEvent(UpgradeRecord, _Event):
    """The run was resumed with other versions."""

    event: Literal["upgraded"]


Event = (
    NumbersEvent
    | ProcessEvent
    | PlannedEvent
    | StageEvent
    | DevEvent
    | StoppedEvent
    | MessageEvent
    | UpgradedEvent
)
_EVENT: TypeAdapter[Event] = TypeAdapter(
    Annotated[Event, Field(discriminator="event")], config={"defer_build": True}
)


def parse_event(line: str | bytes) -> Event | None:
    """Return the event in a line of `events.jsonl`, or None if the line is damaged or unknown."""
    try:
        return _EVENT.validate_json(line)
    except ValidationError:
        return None


class ScoreLine(Record):
    """One line of `scores.jsonl`."""

    key: str
    layer: Count
    removed: Heads
    score: Number


# Checks of the first edition; the readers above replace them.


def check_stage(stage: str, read: Fields) -> None:
    """Raise `RunError`, or `PlanError`, unless a stage record is complete."""
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
    """Check the heads and the best mask of every size."""
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
