"""Results of `auber speed` read back, and as tables: what pruning took away, and how many times as fast the model is."""

from __future__ import annotations

from typing import Any

from auber.errors import RunError
from auber.export.speed.record import Amount, Pair, RunSpeed, Speed, Times
from auber.export.speed.tables import describe, tables_of
from auber.report.columns import Column, Table, TableSection
from auber.report.results_file import ResultsFile
from auber.run.fields import Fields
from auber.training.timing import Ratio

KIND = "speed"
FORMAT = 1


def speed_tables(file: ResultsFile) -> tuple[Table, ...]:
    """Sizes and ratios, a line for each run; then every pair of times."""
    speed = read_speed(file)
    notes = tuple(describe(speed).splitlines())
    return tuple(
        Table(
            f"speed{number}",
            table.title,
            tuple(map(Column, table.columns)),
            (TableSection(None, None, tuple(map(tuple, table.rows))),),
            notes if number == 1 else (),
        )
        for number, table in enumerate(tables_of(speed), 1)
    )


def read_speed(file: ResultsFile) -> Speed:
    """A kept measurement as `auber speed` made it."""
    read = Fields(file.name, file.content)
    if read.get("format", int) != FORMAT:
        raise RunError(
            f"{file.name}: format {FORMAT} can be read, found {read.get('format', int)}; measure it again"
        )
    runs = tuple(
        _run(f"{file.name}: run {number}", run) for number, run in enumerate(read.get("runs", list))
    )
    if not runs or not all(run.pairs for run in runs):
        raise RunError(
            f"{file.name}: must hold at least one run and one pair of times for each; measure it again"
        )
    provenance = {**read.get("provenance", dict), "threads": read.get("provenance.threads", int)}
    return Speed(
        read.get("command", str),
        runs,
        read.items("left_out", str),
        read.get("seconds", float),
        provenance,
    )


def _run(where: str, data: Any) -> RunSpeed:
    read = Fields(where, data)
    return RunSpeed(
        name=read.get("name", str),
        family=read.get("family", str),
        heads_removed=read.get("heads_removed", int),
        heads=read.get("heads", int),
        plan=read.get("plan", dict),
        parameters=_amount(where, read, "parameters"),
        multiply_adds=_amount(where, read, "multiply_adds"),
        pairs=tuple(
            _pair(f"{where}, pair {number}", pair)
            for number, pair in enumerate(read.get("pairs", list))
        ),
    )


def _amount(where: str, read: Fields, key: str) -> Amount:
    found = Amount(*(read.get(f"{key}.{name}", int) for name in ("unpruned", "pruned")))
    if found.unpruned < 1:
        raise RunError(
            f"{where}: '{key}' of the unpruned model must be above 0, found {found.unpruned}; measure it again"
        )
    return found


def _pair(where: str, data: Any) -> Pair:
    read = Fields(where, data)
    return Pair(
        runtime=read.get("runtime", str),
        device=read.get("device", str),
        precision=read.get("precision", str),
        batch=read.get("batch", int),
        length=read.get("length", int),
        rounds=read.get("rounds", int),
        unpruned=_times(read, "unpruned"),
        pruned=_times(read, "pruned"),
        ratio=Ratio(*(read.get(f"ratio.{name}", float) for name in ("median", "low", "high"))),
        verdict=read.get("verdict", str),
    )


def _times(read: Fields, key: str) -> Times:
    names = ("milliseconds", "low_quartile", "high_quartile", "rows_per_second")
    return Times(*(read.get(f"{key}.{name}", float) for name in names))
