"""The JSON files of a run's folder, declared as records.

Every reader uses them: resuming, reports, `auber watch` and studies. Importing this module loads
neither torch nor the pipeline. Keys that only some stages or versions write are optional.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from auber.errors import PlanError
from auber.models.plan import MOST_NEURONS, PruningPlan
from auber.system.locks import Moment
from auber.system.records import Count, Name, Number, Record, Whole

# Of a model in a file; larger numbers are damage, and a table of them would fill the memory.
MOST_HEADS = 65_536

Index = Annotated[str, Field(pattern=r"^[0-9]{1,6}$")]  # a layer or a head as a key of an object
Heads = Annotated[tuple[Count, ...], Field(max_length=MOST_HEADS)]


def _parse_plan(data: Any) -> PruningPlan:
    try:
        plan = data if isinstance(data, PruningPlan) else PruningPlan.from_json(data)
        plan.check(MOST_HEADS, MOST_HEADS, MOST_NEURONS, allow_empty_layers=True)
    except PlanError as error:
        raise ValueError(f"must be a plan ({error})") from error
    return plan


Plan = Annotated[PruningPlan, PlainValidator(_parse_plan), PlainSerializer(PruningPlan.to_json)]
ScoresByHead = dict[Index, dict[Index, Number]]
Share = Annotated[float, Field(ge=0, le=1)]
QValue = Annotated[float, Field(allow_inf_nan=True)]  # the network may diverge
Point = tuple[Count, Number]


@dataclass(frozen=True)
class TimePart:
    """A part of a run's time."""

    words: str  # how a report names it
    work: str  # parts of the same work are added up in short reports


# The keys of `CostRecord.seconds` beside `total`, in the order they are spent. The rest of a run's
# time is reading, copying and hashing weights, and writing its folder.
TIME_PARTS = {
    "first": TimePart("first tuning", "tuning"),
    "timing": TimePart("timing heads", "timing"),
    "choosing": TimePart("choosing heads", "choosing"),
    "scouts": TimePart("fold models", "tuning"),
    "rewards": TimePart("rewards", "rewards"),
    "agent": TimePart("agent", "agent"),
    "rewind": TimePart("tuning the pruned pretrained model", "tuning"),
    "layer_tuning": TimePart("tuning after layers", "tuning"),
    "last": TimePart("last tuning", "tuning"),
    "evaluation": TimePart("evaluation", "evaluation"),
}

Mask = tuple[int, ...]  # the removed heads of a layer, in order


@dataclass(frozen=True)
class SearchScores:
    """The recorded scores of one layer's search: the metric on the reward set."""

    given: float | None  # of what the search started from
    unpruned: float | None  # of the layer with all its heads
    # Of the best mask, of the roll-out and, if a number of heads was given, of the best per size.
    masks: Mapping[Mask, float]

    def of(self, removed: Iterable[int]) -> float | None:
        """Return the score of a mask, None if it is not recorded."""
        return self.masks.get(tuple(sorted(removed)))

    def gain(self, removed: Iterable[int]) -> float | None:
        """Return how much a mask scored above the start of the search, None if not recorded."""
        score = self.of(removed)
        return None if score is None or self.given is None else score - self.given


class Trial(Record):
    """A tuning on some rows of train, and its score on others."""

    learning_rate: Number
    epochs: Count
    score: Number | None  # None if it diverged or the score is not a number
    error: Number = 0.0  # standard error of the score, where it is a mean over rows
    one_class: bool = False  # every row got the same answer
    seconds: Number

    @property
    def rank(self) -> tuple[float, int, float]:
        """Return the sorting key: highest score, then fewest epochs, then smallest rate."""
        score = -math.inf if self.score is None else self.score
        return -score, self.epochs, self.learning_rate


class LearnedRecord(Record):
    """Whether the fine-tuned model learned its task, measured on rows that it was tuned on."""

    learned: bool
    one_answer: bool  # to all rows
    score: Number | None  # None if it is not a number
    majority: Share | None = None  # share of the most frequent class
    rows: Count


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
    change_cost: Number = 0.0  # of all heads alike, in earlier versions
    change_costs: tuple[Number, ...] = ()  # points that changing each present head must gain
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
    q_values: tuple[QValue, ...] = ()  # of removing each present head first; the last is stopping
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


class HeldOutRecord(Record):
    """How a size does on the rows held out for a tolerance."""

    rows: Count
    score: Number
    loss: Number  # points below the unpruned model
    bound: Number  # of the loss, one-sided at 95 %
    is_within: bool  # whether the bound is within the tolerance


class ExchangeRecord(Record):
    """What exchanges at constant cost gained over the plan that they began with."""

    rewards: Count
    start_score: Number
    score: Number
    seconds: Number


class StageRecord(Record):
    """A finished stage: `stages/NAME.json`, and the event that reports it."""

    seconds: Number
    weights: bool = False  # whether the weights at its end were stored
    model_sha256: str | None = None  # of those weights
    peak_gpu_bytes: Count | None = None
    answers_sha256: str | None = None  # of the file of the unpruned model's answers
    digest: str | None = None  # of the fine-tuned weights, in stage `first`
    learned: LearnedRecord | None = None  # in stage `first`
    removed: Heads | Plan | None = None  # from one layer, or from all by a ranking
    search: SearchRecord | None = None
    sizes: Annotated[tuple[SizeRecord, ...], Field(min_length=1)] | None = None
    rate: Number | None = None  # learning rate of the tunings whose setting is auto
    rate_trials: tuple[Trial, ...] = ()
    tuning: TuningRecord | None = None
    held_out: HeldOutRecord | None = None
    scouting: FoldTunings | None = None
    timing: TimingRecord | None = None
    plan: Plan | None = None
    gain: Number | None = None
    # Rankings
    draw: Count | None = None
    importance: ScoresByHead | None = None
    confidence: ScoresByHead | None = None
    gates: ScoresByHead | None = None
    penalty: Number | None = None
    trials: tuple[GateTrial, ...] = ()
    gate_steps: Count = 0
    exchange: ExchangeRecord | None = None

    @property
    def scores(self) -> SearchScores:
        """Return the scores of the layer's search."""
        masks: dict[Mask, float] = {}
        search = self.search
        if search is None:
            return SearchScores(None, None, masks)
        if search.best_score is not None:
            masks[tuple(sorted(search.best))] = search.best_score
        if search.rollout_score is not None:
            masks[tuple(sorted(search.rollout))] = search.rollout_score
        masks |= {tuple(sorted(size.removed)): size.score for size in self.sizes or ()}
        if search.given_score is not None:
            return SearchScores(search.given_score, search.unpruned_score, masks)
        # Early versions recorded the score that the search started from as `unpruned_score`.
        unpruned = None if search.given else search.unpruned_score
        return SearchScores(search.unpruned_score, unpruned, masks)

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


def _require_heads(layers: int, heads_per_layer: int) -> None:
    if layers * heads_per_layer > MOST_HEADS:
        raise ValueError(f"must have at most {MOST_HEADS} heads")


class HeadCounts(Record):
    """How many heads a model has and lost."""

    removed: Count
    total: Count
    layers: Annotated[int, Field(ge=1, le=MOST_HEADS)]
    per_layer: Annotated[int, Field(ge=1, le=MOST_HEADS)]

    @model_validator(mode="after")
    def _check_total(self) -> HeadCounts:
        _require_heads(self.layers, self.per_layer)
        return self


class NeuronCounts(Record):
    """How many feed-forward neurons a model has and lost."""

    removed: Count
    total: Count
    per_layer: Count


class RemainingSize(Record):
    """What remains of the unpruned model, as shares of 1."""

    multiply_adds: Share  # of the encoder's layers, in rows of `length` tokens
    parameters: Share  # of the whole model
    length: Count


class ComparedRecord(Record):
    """What a run compares before and after it."""

    score: Number  # on dev
    rows: Count  # of dev
    multiply_adds: Share  # that remain of the unpruned encoder's
    parameters: Count
    milliseconds: Number  # of one row of `tokens` tokens in plain torch, on the run's device
    tokens: Count


class OrderRecord(Record):
    """How like the unpruned model's order that of each group is (`auber.metrics.orders`)."""

    groups: Count  # of at least two rows
    same_first: Share
    ndcg: Number  # mean
    low_ndcg: Number  # that a tenth of the groups is below
    spearman: Number


class AgreementRecord(Record):
    """How well a model agrees with the unpruned one on dev, without labels."""

    metrics: dict[Name, Number]
    orders: OrderRecord | None = None  # of rows with groups and numbers for answers


class ModelRecord(Record):
    """How a model that a run made does, and what was removed from it."""

    dev: ScoreRecord
    train: ScoreRecord
    gap: Number
    heads: HeadCounts
    neurons: NeuronCounts | None = None  # like the next two, not in results of the first edition
    remaining: RemainingSize | None = None
    after: ComparedRecord | None = None
    agreement: AgreementRecord | None = None
    plan: Plan
    model_sha256: str | None = None


class SizeModelRecord(ModelRecord):
    """One of the sizes of a run; its model is the folder `models/NAME`."""

    keep: Share
    name: Name
    tuning: TuningRecord
    held_out: HeldOutRecord | None = None


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


class ResultRecord(ModelRecord):
    """The result of a finished run: `result.json`, with what is true of the model in `model`."""

    format: Literal[1]
    kind: Literal["prune", "finetune"]
    command: Name | None
    model: Name
    method: Name
    task: Name
    labels: Count
    rows: RowCounts
    metric: Name
    answered: bool = False  # without labels: the score is the agreement with the unpruned model
    protocol: Name
    seed: Whole
    before: ComparedRecord | None = None  # the fine-tuned model
    sizes: tuple[SizeModelRecord, ...] = ()  # of a run that makes several, the largest first
    chosen: Name | None = None  # the one of these that is `model`
    tuned_layers: tuple[Count, ...]
    start: Name  # digest of the fine-tuned weights
    learning_rate: Number | None = None  # that was chosen, if a setting was auto
    learned: LearnedRecord | None = None  # not in results of the first edition
    cost: CostRecord
    config: dict[Name, Any]
    data: Name  # digest of all rows
    provenance: ProvenanceRecord


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
        _require_heads(self.layers, self.heads_per_layer)
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


class SettledRecord(Record):
    """`settled.json`: numbers that a run measured by the clock, by name."""

    numbers: dict[Name, Count]


class ScoreLine(Record):
    """One line of `scores.jsonl`."""

    key: str
    layer: Count
    removed: Heads
    score: Number
