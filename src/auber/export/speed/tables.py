"""A measurement of speed in words: what was counted, one line a run; what was timed, one line a pair."""

from __future__ import annotations

from dataclasses import dataclass

from auber.export.speed.record import Amount, Pair, RunSpeed, Speed, Times
from auber.training.timing import brief

_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class Table:
    """Columns and rows of text."""

    title: str
    columns: list[str]
    rows: list[list[str]]


def tables_of(speed: Speed) -> list[Table]:
    """What pruning took away and what it bought, a line for each run; then every pair of times."""
    return [_summary(speed), _details(speed)]


def describe(speed: Speed) -> str:
    """What the numbers are."""
    pair = speed.runs[0].pairs[0]
    threads = speed.provenance["threads"]
    lines = [
        f"rows of {pair.length} tokens, {threads} CPU thread{'s' if threads != 1 else ''}; both models have random weights, "
        "which latency does not depend on",
        *(f"left out: {words}" for words in speed.left_out),
    ]
    return "\n".join(lines)


def way_of(pair: Pair) -> str:
    """Runtime, device, precision and batch."""
    return f"{pair.runtime}, {pair.device}, {pair.precision}, batch {pair.batch}"


def _devices(speed: Speed) -> str:
    return " and ".join(dict.fromkeys(pair.device for run in speed.runs for pair in run.pairs))


def _summary(speed: Speed) -> Table:
    ways = list(dict.fromkeys(way_of(pair) for run in speed.runs for pair in run.pairs))
    columns = ["run", "heads removed", "parameters", "multiply-adds a row", *ways]
    title = (
        f"What pruning buys on {_devices(speed)}: sizes, and how many times as fast (95 % interval)"
    )
    return Table(title, columns, [_summary_row(run, ways) for run in speed.runs])


def _summary_row(run: RunSpeed, ways: list[str]) -> list[str]:
    ratios = {way_of(pair): brief(pair.ratio) for pair in run.pairs}
    return [
        run.name,
        f"{run.heads_removed} of {run.heads}",
        _amount(run.parameters),
        _amount(run.multiply_adds),
        *(ratios.get(way, "") for way in ways),
    ]


def _details(speed: Speed) -> Table:
    columns = [
        "run",
        "runtime",
        "unpruned ms",
        "pruned ms",
        "unpruned rows/s",
        "pruned rows/s",
        "rounds",
    ]
    rows = [
        [
            run.name,
            way_of(pair),
            _times(pair.unpruned),
            _times(pair.pruned),
            f"{pair.unpruned.rows_per_second:.1f}",
            f"{pair.pruned.rows_per_second:.1f}",
            str(pair.rounds),
        ]
        for run in speed.runs
        for pair in run.pairs
    ]
    return Table(f"Medians on {_devices(speed)}, with quartiles", columns, rows)


def _times(times: Times) -> str:
    return f"{times.milliseconds:.4g} ({times.low_quartile:.4g} to {times.high_quartile:.4g})"


def _amount(amount: Amount) -> str:
    share = 100 * (amount.pruned / amount.unpruned - 1)
    return f"{_short(amount.pruned)} of {_short(amount.unpruned)} ({share:+.1f} %)"


def _short(number: int) -> str:
    for size, unit in _UNITS:
        if number >= size:
            return f"{number / size:.4g} {unit}"
    return str(number)
