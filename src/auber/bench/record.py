"""The result of a bench as one typed value, to JSON and back.

Times are medians after a warm-up, the device idle at both ends. A record holds no path of the machine it was made on.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auber.config import show_name
from auber.errors import RunError

FORMAT = 1
KIND = "bench"


@dataclass(frozen=True)
class SubjectRecord:
    """What was measured."""

    model: str
    family: str
    attention: str  # the implementation the plain ways used: transformers' default
    layers: int
    heads: int  # of a layer
    hidden_size: int
    intermediate_size: int
    parameters: int
    task: str
    metric: str
    rows: int  # of the reward set
    tokens: int
    longest: int
    train_rows: int
    seed: int


@dataclass(frozen=True)
class DeviceRecord:
    """Where, and how fast it multiplies."""

    name: str
    precision: str
    threads: int
    matrix_size: int
    teraflops: float  # measured
    load: (
        float | None
    )  # processes that wanted a core in the minute before the measuring; None where that is unknown


@dataclass(frozen=True)
class PlainRecord:
    """A reward the plain way; it does not depend on the layer."""

    precision: str
    batch_size: int
    padding: str
    milliseconds: float
    passes: int  # timed
    rewards_per_second: float


@dataclass(frozen=True)
class LayerRecord:
    """A reward of one layer by the scorer."""

    layer: int
    prepare_seconds: (
        float  # from a new scorer to its first reward: caches, compilation, that reward
    )
    milliseconds: float
    rewards_per_second: float
    many: int  # masks scored at once for the next figure
    many_milliseconds: float  # a reward
    ratio: float  # plain float32 time over this
    low_precision_ratio: float
    floor_milliseconds: float
    floor_share: float


@dataclass(frozen=True)
class TotalRecord:
    """Over the measured layers: ratios of summed times."""

    layers: int
    milliseconds: float  # a reward, mean over the layers
    rewards_per_second: float
    ratio: float
    low_precision_ratio: float
    floor_milliseconds: float  # a reward, mean over the layers
    floor_share: float
    prepare_seconds: float  # all of them


@dataclass(frozen=True)
class AgreementRecord:
    """How far a way is from plain float32 on the same masks."""

    masks: int
    largest_logit_difference: float
    logit_spread: float  # standard deviation of the plain logits over the rows, to compare with
    disagreements: int  # predictions that differ, over all masks
    predictions: int
    largest_metric_difference: float
    mean_metric_difference: float


@dataclass(frozen=True)
class RewardsRecord:
    """The three ways side by side."""

    plain: PlainRecord
    low_precision: PlainRecord
    layers: tuple[LayerRecord, ...]
    total: TotalRecord
    low_precision_agreement: AgreementRecord
    scorer_agreement: AgreementRecord


@dataclass(frozen=True)
class TuningWayRecord:
    """So many steps, from the call to the tuned model."""

    steps: int
    seconds: float
    steps_per_second: float


@dataclass(frozen=True)
class TuningRecord:
    """Fine-tuning here against the plain Trainer, on the same rows."""

    batch_size: int
    rows: int
    plain: TuningWayRecord
    tune: TuningWayRecord
    ratio: float


@dataclass(frozen=True)
class SearchSeconds:
    """Where the time of a whole run went. What is None was not told apart when the run was made, and is in the rest."""

    rewards: float
    agent: float  # the search without its rewards
    tuning: float
    evaluation: float
    rest: float  # reading, copying and digesting weights, and writing the run's folder
    total: float
    choosing: float | None = None  # the gates of the plan that the search begins from
    timing: float | None = None  # of the model with heads and without


@dataclass(frozen=True)
class SearchRecord:
    """A whole run."""

    preset: str
    protocol: str
    episodes: int
    rewards_asked: int
    rewards_computed: int
    tuning_steps: int
    heads_removed: int
    heads: int
    seconds: SearchSeconds


@dataclass(frozen=True)
class GrowthPoint:
    """A reward of layer 0, the dearest, at one size."""

    size: int
    milliseconds: float
    prepare_seconds: float
    floor_milliseconds: float


@dataclass(frozen=True)
class GrowthSeries:
    """Points that differ in one size, and the power of it that fits the times best; the floor's own beside it."""

    axis: str
    exponent: float
    floor_exponent: float
    points: tuple[GrowthPoint, ...]


@dataclass(frozen=True)
class Bench:
    """One `auber bench`."""

    command: str
    subject: SubjectRecord
    device: DeviceRecord
    rewards: RewardsRecord | None
    tuning: TuningRecord | None
    search: SearchRecord | None
    growth: tuple[GrowthSeries, ...] | None
    seconds: float
    provenance: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """A plain JSON object, numbers to six digits."""
        return {"format": FORMAT, "kind": KIND, **_plain(self)}

    @classmethod
    def from_json(cls, data: Any, where: str = "bench") -> Bench:
        """The bench `to_json` wrote; anything else raises `RunError` naming `where`."""
        if not isinstance(data, dict) or data.get("kind") != KIND:
            raise RunError(f"{where}: a result of 'auber bench' is needed, found something else")
        if data.get("format") != FORMAT:
            raise RunError(
                f"{where}: format {FORMAT} can be read, found {data.get('format')!r}; make the result anew"
            )
        body = {key: value for key, value in data.items() if key not in ("format", "kind")}
        bench: Bench = _build(cls, body, where)
        return bench


def read_bench(path: Path) -> Bench:
    """The bench of a file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RunError(f"{path}: no such file; give one made by 'auber bench --out'") from error
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(
            f"{path}: cannot be read as JSON ({error}); give a file made by 'auber bench --out'"
        ) from error
    return Bench.from_json(data, str(path))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _build(kind: Any, value: Any, where: str) -> Any:
    """A value of a type out of JSON."""
    if isinstance(kind, types.UnionType):  # always X | None here
        (kind,) = [part for part in typing.get_args(kind) if part is not types.NoneType]
        return None if value is None else _build(kind, value, where)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        # What files of older versions lack has a default.
        needed = {
            item.name for item in dataclasses.fields(kind) if item.default is dataclasses.MISSING
        }
        if not isinstance(value, dict) or not needed <= value.keys() <= hints.keys():
            found = (
                ", ".join(sorted(map(show_name, value)))
                if isinstance(value, dict)
                else type(value).__name__
            )
            raise RunError(
                f"{where}: an object with {', '.join(sorted(hints))} is needed, found {found}"
            )
        return typing.cast("Any", kind)(
            **{key: _build(hints[key], value[key], f"{where}: {key}") for key in value}
        )
    origin = typing.get_origin(kind) or kind
    if origin is tuple and isinstance(value, list):
        (item, _) = typing.get_args(kind)
        return tuple(_build(item, entry, f"{where}: {index}") for index, entry in enumerate(value))
    if origin is float and type(value) is int and abs(value) <= sys.float_info.max:
        return float(value)
    if type(value) is not origin:
        raise RunError(f"{where}: {origin.__name__} is needed, found {value!r:.40}")
    return value
