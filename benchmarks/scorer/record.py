"""The result of the scorer benchmark, to JSON and back.

Times are medians after a warm-up, with the device idle before and after.
"""

from __future__ import annotations

from typing import Any, Literal

from auber.system.records import Count, Name, Number, Record


class SubjectRecord(Record):
    """The model and its rows."""

    model: Name
    family: Name
    attention: Name  # of the plain ways: the default of transformers
    layers: Count
    heads: Count  # of a layer
    hidden_size: Count
    intermediate_size: Count
    parameters: Count
    task: Name
    metric: Name
    rows: Count  # of the reward set
    tokens: Count
    longest: Count
    train_rows: Count
    seed: Count


class DeviceRecord(Record):
    """The device and its speed."""

    name: Name
    precision: Name
    threads: Count
    matrix_size: Count
    teraflops: Number  # measured
    load: Number | None  # processes that wanted a core in the minute before; None if unknown


class PlainRecord(Record):
    """A reward by plain transformers; it does not depend on the layer."""

    precision: Name
    batch_size: Count
    padding: Name
    milliseconds: Number
    passes: Count  # timed
    rewards_per_second: Number


class TimeRecord(Record):
    """A reward by the scorer, beside the plain ways."""

    milliseconds: Number
    rewards_per_second: Number
    ratio: Number  # time of plain float32 over this
    low_precision_ratio: Number
    prepare_seconds: Number  # from a new scorer to its first reward


class PlansRecord(TimeRecord):
    """A reward of a plan for the whole model."""

    kept: Number  # share of the multiply-adds, mean over the plans


class ScorerRecord(TimeRecord):
    """A reward of a layer, beside the floor too."""

    floor_milliseconds: Number
    floor_share: Number


class LayerRecord(ScorerRecord):
    """A reward of one layer."""

    layer: Count
    many: Count  # masks scored at once for the next number
    many_milliseconds: Number  # per reward


class TotalRecord(ScorerRecord):
    """All measured layers: mean times, whose ratios these are, and the sum of `prepare_seconds`."""

    layers: Count


class AgreementRecord(Record):
    """The distance from plain float32 on the same masks."""

    masks: Count
    largest_logit_difference: Number
    logit_spread: Number  # standard deviation of the plain logits over the rows
    disagreements: Count  # predictions that differ, over all masks
    predictions: Count
    largest_metric_difference: Number
    mean_metric_difference: Number


class KindRecord(Record):
    """The scorer on masks of one kind of unit."""

    layers: tuple[LayerRecord, ...]
    total: TotalRecord


class RewardsRecord(KindRecord):
    """Plain float32, plain in the scorer's precision, and the scorer on masks of heads and more."""

    plain: PlainRecord
    low_precision: PlainRecord
    low_precision_agreement: AgreementRecord
    scorer_agreement: AgreementRecord
    neurons: KindRecord | None = None
    plans: PlansRecord | None = None


class TuningSide(Record):
    """Some tuning steps, from the call to the tuned model."""

    steps: Count
    seconds: Number
    steps_per_second: Number


class TuningRecord(Record):
    """Fine-tuning by auber and by the plain Trainer, on the same rows."""

    batch_size: Count
    rows: Count
    plain: TuningSide
    tune: TuningSide
    ratio: Number


class SearchSeconds(Record):
    """The time of a whole run; a part that is None is in the rest."""

    rewards: Number
    agent: Number  # the search without its rewards
    tuning: Number
    evaluation: Number
    rest: Number  # reading, copying and digesting weights
    total: Number
    choosing: Number | None = None  # of the plan that the search begins from
    timing: Number | None = None  # of the model with heads and without


class SearchRecord(Record):
    """A whole run."""

    preset: Name
    protocol: Name
    episodes: Count
    rewards_asked: Count
    rewards_computed: Count
    tuning_steps: Count
    heads_removed: Count
    heads: Count
    seconds: SearchSeconds


class GrowthPoint(Record):
    """A reward of layer 0, the most expensive one, at one size."""

    size: Count
    milliseconds: Number
    prepare_seconds: Number
    floor_milliseconds: Number


class GrowthSeries(Record):
    """Points that differ in one size, and the power of it that fits their times best."""

    axis: Name
    exponent: Number
    floor_exponent: Number
    points: tuple[GrowthPoint, ...]


class Bench(Record):
    """One run of the benchmark."""

    format: Literal[1] = 1
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

    def to_json(self, *, drop_none: bool = False) -> dict[str, Any]:
        """Return the record as plain JSON types, with numbers rounded to six digits."""
        found: dict[str, Any] = _rounded(super().to_json(drop_none=drop_none))
        return found


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
