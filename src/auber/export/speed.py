"""A measurement of size and speed: what can be requested, its record, and its tables.

Reading a stored measurement loads neither torch nor the models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Annotated, Any, Literal

from pydantic import Field

from auber.errors import ConfigError, unknown_name
from auber.run.records import Plan
from auber.run.result_record import CommitRecord
from auber.system.records import LARGEST_NUMBER, Count, Name, Number, Record
from auber.training.timing import Limits, Ratio, brief, ratio_of, verdict

DEVICES = ("auto", "cpu", "cuda")
USUAL_LENGTH = 128  # tokens per row


@dataclass(frozen=True)
class SpeedRequest:
    """What to measure: the runs, on what device, and how often."""

    runs: tuple[str, ...]
    model: str | None = None  # the architecture of runs whose model was deleted
    only: tuple[str, ...] = ()  # runs of a results file, such as method=auber,seed=1
    batches: tuple[int, ...] = (1, 16)
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
    """Return the numbers of `1,16` in ascending order."""
    words = [word.strip() for word in text.split(",")]
    numbers = sorted(int(word) for word in words if word.isascii() and word.isdigit())
    if len(numbers) < len(words) or len(set(numbers)) < len(words) or numbers[0] < 1:
        raise ConfigError(
            "--batch must be different numbers from 1 with commas between, such as 1,16, "
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


class Variant(Record):
    """A variant of the unpruned model, and how many times as fast it is."""

    name: Name  # such as pruned, or unpruned int8
    times: Times
    ratio: Ratio


class Timing(Record):
    """The unpruned model and its variants, timed side by side on one batch."""

    runtime: Name
    device: Name
    precision: Name  # of all but the int8 variants
    batch: Count
    length: Count
    rounds: Count
    unpruned: Times
    variants: tuple[Variant, ...]

    @classmethod
    def of(
        cls,
        setting: tuple[str, str, str],
        batch: int,
        length: int,
        names: Sequence[str],
        seconds: Sequence[Sequence[float]],
    ) -> Timing:
        """Summarize the seconds of each model in all rounds; the unpruned one is the first.

        `setting` is runtime, device and precision. There may be fewer models than `names`.
        """
        runtime, device, precision = setting
        unpruned, *others = seconds
        return cls(
            runtime=runtime,
            device=device,
            precision=precision,
            batch=batch,
            length=length,
            rounds=len(unpruned),
            unpruned=Times.of(unpruned, batch),
            variants=tuple(
                Variant(name=name, times=Times.of(own, batch), ratio=ratio_of(unpruned, own))
                for name, own in zip(names[1:], others, strict=False)
            ),
        )

    @property
    def setting(self) -> str:
        """The runtime, device, precision and batch size."""
        return f"{self.runtime}, {self.device}, {self.precision}, batch {self.batch}"

    @property
    def words(self) -> str:
        """The ratios in words."""
        return "; ".join(f"{each.name} {verdict(each.ratio)}" for each in self.variants)


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
    neurons_removed: Count
    neurons: Count
    plan: Plan
    parameters: Amount
    multiply_adds: Amount  # of one row
    int8_bytes: Amount | None  # of the quantised graphs; None if onnxruntime was not measured
    timings: tuple[Timing, ...]


class SpeedProvenance(Record):
    """The environment of a measurement; device and precision are in each pair."""

    versions: dict[Name, Name]
    commit: CommitRecord | None
    threads: Count


class Speed(Record):
    """The result of one `auber speed`."""

    format: Literal[2] = 2
    kind: Literal["speed"] = "speed"
    command: str
    runs: Annotated[tuple[RunSpeed, ...], Field(min_length=1)]
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
    lengths = {f"rows of {each.length} tokens, " for run in speed.runs for each in run.timings}
    lines = [
        f"{''.join(sorted(lengths))}{threads} CPU thread{'s' if threads != 1 else ''}; "
        "all models have random weights, which latency does not depend on",
        *(f"left out: {reason}" for reason in speed.left_out),
    ]
    return "\n".join(lines)


def make_tables(speed: Speed) -> dict[str, list[dict[str, str]]]:
    """Return rows by the title of their table: sizes, ratios of the variants, and all times."""
    timings = [(run, timing) for run in speed.runs for timing in run.timings]
    devices = " and ".join(dict.fromkeys(timing.device for _, timing in timings))
    settings = dict.fromkeys((timing.setting for _, timing in timings), "")
    sizes = [
        {
            "run": run.name,
            "heads removed": _format_count(run.heads_removed, run.heads),
            "neurons removed": _format_count(run.neurons_removed, run.neurons),
            "multiply-adds per row": _format_amount(run.multiply_adds),
            "parameters": _format_amount(run.parameters),
            "file size": _format_files(run),
        }
        for run in speed.runs
    ]
    ratios: dict[tuple[str, str], dict[str, str]] = {}
    times = []
    for run, timing in timings:
        for each in timing.variants:
            names = {"run": run.name, "model": each.name}
            row = ratios.setdefault((run.name, each.name), names | settings)
            row[timing.setting] = brief(each.ratio)
        for name, found in (
            ("unpruned", timing.unpruned),
            *((each.name, each.times) for each in timing.variants),
        ):
            quartiles = f"{found.low_quartile:.4g} to {found.high_quartile:.4g}"
            times.append(
                {
                    "run": run.name,
                    "runtime": timing.setting,
                    "model": name,
                    "ms (quartiles)": f"{found.milliseconds:.4g} ({quartiles})",
                    "rows/s": f"{found.rows_per_second:.1f}",
                    "rounds": str(timing.rounds),
                }
            )
    tables = {
        "Size: pruned of unpruned": sizes,
        f"Times as fast as the unpruned model on {devices} (95 % interval)": [*ratios.values()],
        f"Median times on {devices}": times,
    }
    return {title: rows for title, rows in tables.items() if rows}


def _format_count(removed: int, total: int) -> str:
    return f"{removed:,} of {total:,}"


def _format_amount(amount: Amount) -> str:
    share = 100 * amount.pruned / amount.unpruned
    pruned, unpruned = (_shorten(number) for number in (amount.pruned, amount.unpruned))
    return f"{pruned} of {unpruned} ({share:.1f} %)"


def _format_files(run: RunSpeed) -> str:
    """Format the sizes of the weights: 4 bytes for each, and those of the quantised graphs."""
    size, small = run.parameters, run.int8_bytes
    words = f"{_shorten(4 * size.pruned, 'B')} of {_shorten(4 * size.unpruned, 'B')}"
    if small is None:
        return words
    return f"{words}; int8 {_shorten(small.pruned, 'B')} of {_shorten(small.unpruned, 'B')}"


def _shorten(number: int, unit: str = "") -> str:
    for size, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.4g} {prefix}{unit}"
    return f"{number} {unit}".rstrip()
