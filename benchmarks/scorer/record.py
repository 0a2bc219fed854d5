"""The result of the scorer benchmark, to JSON and back.

It holds what was measured; `tables` derives ratios and shares. Times are medians after a warm-up,
with the device idle before and after.
"""

from __future__ import annotations

from typing import Any, Literal

from auber.system.records import Count, Name, Number, Record


class SubjectRecord(Record):
    """The model and its rows."""

    model: Name
    attention: Name  # of plain transformers: its default
    layers: Count
    heads: Count  # of a layer
    hidden_size: Count
    parameters: Count
    task: Name
    rows: Count  # of the reward set
    tokens: Count
    longest: Count


class DeviceRecord(Record):
    """The device and its speed."""

    name: Name
    precision: Name
    threads: Count
    matrix_size: Count
    teraflops: Number  # measured
    load: Number | None  # processes that wanted a core in the minute before; None if unknown


class PlainRecord(Record):
    """A reward by plain transformers; it does not depend on the mask."""

    precision: Name
    batch_size: Count
    padding: Name
    milliseconds: Number
    passes: Count  # timed


class ScorerRecord(Record):
    """A reward by the scorer of a layer, or of the whole model if `masks` is "plans"."""

    masks: Literal["heads", "neurons", "plans"]
    layer: Count | None = None
    milliseconds: Number
    prepare_seconds: Number  # from a new scorer to its first reward
    floor_milliseconds: Number | None = None
    kept: Number | None = None  # share of the multiply-adds that plans leave, mean


class AgreementRecord(Record):
    """The distance from plain float32 on the same masks."""

    masks: Count
    largest_logit_difference: Number
    disagreements: Count  # predictions that differ, over all masks
    predictions: Count
    largest_metric_difference: Number
    mean_metric_difference: Number


class RewardsRecord(Record):
    """Plain float32, plain with sorted rows in the scorer's precision, and the scorers."""

    plain: PlainRecord
    plain_sorted: PlainRecord
    scorers: tuple[ScorerRecord, ...]
    plain_sorted_agreement: AgreementRecord
    scorer_agreement: AgreementRecord


class TuningRecord(Record):
    """The same tuning by auber and by the plain Trainer, from the call to the tuned model."""

    batch_size: Count
    rows: Count
    steps: Count
    plain_seconds: Number
    seconds: Number


class SearchRecord(Record):
    """A whole run; its seconds by kind of work."""

    preset: Name
    protocol: Name
    rewards_computed: Count
    tuning_steps: Count
    seconds: dict[Name, Number]


class GrowthPoint(Record):
    """A reward of layer 0, the most expensive one, at one size."""

    size: Count
    milliseconds: Number
    floor_milliseconds: Number


class GrowthSeries(Record):
    """Points that differ in one size."""

    axis: Name
    points: tuple[GrowthPoint, ...]


class Bench(Record):
    """One run of the benchmark."""

    format: Literal[2] = 2
    kind: Literal["bench"] = "bench"
    command: str
    subject: SubjectRecord
    device: DeviceRecord
    rewards: RewardsRecord | None
    tuning: TuningRecord | None
    search: SearchRecord | None
    growth: tuple[GrowthSeries, ...] | None
    seconds: Number
    provenance: dict[str, Any]
