"""A measurement of size and speed: what can be requested, its record, and its tables.

Reading a stored measurement loads neither torch nor the models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field

from auber.errors import ConfigError, unknown_name
from auber.run.records import CommitRecord, Plan
from auber.system.records import LARGEST_NUMBER, Count, Name, Number, Record
from auber.training.timing import Limits, Ratio, brief, ratio_of, verdict

DEVICES = ("auto", "cpu", "cuda")
USUAL_LENGTH = 128  # tokens per row


@dataclass(frozen=True)
class Request:
    """What to measure: the runs, on what device, and how often."""

    runs: tuple[str, ...]
    model: str | None = None  # the architecture of runs whose model was deleted
    only: tuple[str, ...] = ()  # runs of a results file, such as method=auber,seed=1
    batches: tuple[int, ...] = (1, 32)
    length: int | None = None  # None: the usual length, or the model's number of positions
    device: str = "auto"  # auto: the CPU, and a GPU if there is one
    onnx: bool | None = None  # None: if it is installed, unless the device is a GPU alone
    threads: int = 0  # 0: torch's choice
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise ConfigError(unknown_name("device", self.device, DEVICES))
        if self.length is not None and self.length < 1:
            raise ConfigError(f"--length must be at least 1, found {self.length}")
        if self.threads < 0:
            raise ConfigError(
                f"--threads must be 0 (as many as torch finds) or more, found {self.threads}"
            )


def parse_batches(text: str) -> tuple[int, ...]:
    """Return the numbers of `1,32` in ascending order."""
    words = [word.strip() for word in text.split(",")]
    numbers = sorted(int(word) for word in words if word.isascii() and word.isdigit())
    if len(numbers) < len(words) or len(set(numbers)) < len(words) or numbers[0] < 1:
        raise ConfigError(
            "--batch must be different numbers from 1 with commas between, such as 1,32, "
            f"found '{text}'"
        )
    return tuple(numbers)


class Times(Record):
    """The times of one model on one batch."""

    milliseconds: Number  # the median
    low_quartile: Number
    high_quartile: Number
    rows_per_second: Number  # at the median

    @classmethod
    def of(cls, seconds: Sequence[float], batch: int) -> Times:
        """Summarize the repeated times of a batch of this many rows."""
        low, middle, high = (1000 * value for value in quantiles(seconds, n=4, method="inclusive"))
        return cls(
            milliseconds=middle,
            low_quartile=low,
            high_quartile=high,
            rows_per_second=batch / median(seconds),
        )


class Pair(Record):
    """The unpruned and the pruned model, timed side by side."""

    runtime: Name
    device: Name
    precision: Name
    batch: Count
    length: Count
    rounds: Count
    unpruned: Times
    pruned: Times
    ratio: Ratio
    verdict: Name

    @classmethod
    def of(
        cls,
        setting: tuple[str, str, str],
        batch: int,
        length: int,
        unpruned: Sequence[float],
        pruned: Sequence[float],
    ) -> Pair:
        """Summarize the seconds of all rounds; `setting` is runtime, device and precision."""
        runtime, device, precision = setting
        ratio = ratio_of(unpruned, pruned)
        return cls(
            runtime=runtime,
            device=device,
            precision=precision,
            batch=batch,
            length=length,
            rounds=len(pruned),
            unpruned=Times.of(unpruned, batch),
            pruned=Times.of(pruned, batch),
            ratio=ratio,
            verdict=verdict(ratio),
        )

    @property
    def setting(self) -> str:
        """The runtime, device, precision and batch size."""
        return f"{self.runtime}, {self.device}, {self.precision}, batch {self.batch}"


class Amount(Record):
    """A number counted in both models."""

    unpruned: Annotated[int, Field(ge=1, le=LARGEST_NUMBER)]
    pruned: Count


class RunSpeed(Record):
    """The size and speed of one run's model."""

    name: Name
    family: Name
    heads_removed: Count
    heads: Count
    plan: Plan
    parameters: Amount
    multiply_adds: Amount  # of one row
    pairs: tuple[Pair, ...]


class SpeedProvenance(Record):
    """The environment of a measurement; device and precision are in each pair."""

    versions: dict[Name, Name]
    commit: CommitRecord | None
    threads: Count


def _require_runs(runs: tuple[RunSpeed, ...]) -> tuple[RunSpeed, ...]:
    if not runs:
        raise ValueError("must have at least one run")
    return runs


class Speed(Record):
    """The result of one `auber speed`."""

    format: Literal[1] = 1
    kind: Literal["speed"] = "speed"
    command: str
    runs: Annotated[tuple[RunSpeed, ...], AfterValidator(_require_runs)]
    left_out: tuple[str, ...]  # what was not measured, and why
    seconds: Number
    provenance: SpeedProvenance

    def to_json(self, *, drop_none: bool = False) -> dict[str, Any]:
        """Return a plain JSON object with numbers rounded to six digits."""
        rounded: dict[str, Any] = _round(super().to_json(drop_none=drop_none))
        return rounded


def _round(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _round(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_round(entry) for entry in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def describe(speed: Speed) -> str:
    """Return the conditions of a measurement, and what was left out."""
    threads = speed.provenance.threads
    lengths = {f"rows of {pair.length} tokens, " for run in speed.runs for pair in run.pairs}
    lines = [
        f"{''.join(sorted(lengths))}{threads} CPU thread{'s' if threads != 1 else ''}; "
        "both models have random weights, which latency does not depend on",
        *(f"left out: {reason}" for reason in speed.left_out),
    ]
    return "\n".join(lines)


class SpeedTable(NamedTuple):
    """A table of text."""

    title: str
    columns: list[str]
    rows: list[list[str]]


def make_tables(speed: Speed) -> tuple[SpeedTable, SpeedTable]:
    """Return a table with a row per run, and one with a row per pair of times."""
    pairs = [(run, pair) for run in speed.runs for pair in run.pairs]
    devices = " and ".join(dict.fromkeys(pair.device for _, pair in pairs))
    settings = list(dict.fromkeys(pair.setting for _, pair in pairs))
    summary = [
        [
            run.name,
            f"{run.heads_removed} of {run.heads}",
            _format_amount(run.parameters),
            _format_amount(run.multiply_adds),
            *(ratios.get(setting, "") for setting in settings),
        ]
        for run in speed.runs
        for ratios in [{pair.setting: brief(pair.ratio) for pair in run.pairs}]
    ]
    timings = [
        [
            run.name,
            pair.setting,
            _format_times(pair.unpruned),
            _format_times(pair.pruned),
            f"{pair.unpruned.rows_per_second:.1f}",
            f"{pair.pruned.rows_per_second:.1f}",
            str(pair.rounds),
        ]
        for run, pair in pairs
    ]
    rates = ["unpruned rows/s", "pruned rows/s"]
    return (
        SpeedTable(
            f"Size and speedup on {devices} (95 % interval)",
            ["run", "heads removed", "parameters", "multiply-adds per row", *settings],
            summary,
        ),
        SpeedTable(
            f"Median times on {devices}, with quartiles",
            ["run", "runtime", "unpruned ms", "pruned ms", *rates, "rounds"],
            timings,
        ),
    )


def _format_times(times: Times) -> str:
    return f"{times.milliseconds:.4g} ({times.low_quartile:.4g} to {times.high_quartile:.4g})"


def _format_amount(amount: Amount) -> str:
    share = 100 * (amount.pruned / amount.unpruned - 1)
    return f"{_shorten(amount.pruned)} of {_shorten(amount.unpruned)} ({share:+.1f} %)"


def _shorten(number: int) -> str:
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.4g} {unit}"
    return str(number)
