"""The record of a finished run: `result.json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from auber.run.records import MOST_HEADS, Plan, Share, UpgradeRecord, require_heads
from auber.run.stage_record import HeldOutRecord, LearnedRecord, TuningRecord
from auber.system.records import Count, Name, Number, Record, Whole


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
    "choosing": TimePart("choosing units", "choosing"),
    "scouts": TimePart("fold models", "tuning"),
    "rewards": TimePart("rewards", "rewards"),
    "agent": TimePart("agent", "agent"),
    "rewind": TimePart("tuning the pruned pretrained model", "tuning"),
    "layer_tuning": TimePart("tuning after layers", "tuning"),
    "last": TimePart("last tuning", "tuning"),
    "evaluation": TimePart("evaluation", "evaluation"),
}


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
        require_heads(self.layers, self.per_layer)
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
    # Of one row of `tokens` tokens in plain torch, on the run's device.
    milliseconds: Annotated[Number, Field(gt=0)]
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
