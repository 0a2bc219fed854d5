"""Results of `auber speed`, read back and as tables of the results page."""

from __future__ import annotations

from auber.export.speed import Speed, describe, make_tables
from auber.report.columns import Column, Table, TableSection
from auber.report.results_file import ResultsFile
from auber.system.records import parse

KIND = "speed"


def speed_tables(file: ResultsFile) -> tuple[Table, ...]:
    """Return the tables of a measurement: one row per run, then one row per pair of times."""
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
        for number, table in enumerate(make_tables(speed), 1)
    )


def read_speed(file: ResultsFile) -> Speed:
    """Return a stored measurement."""
    return parse(Speed, file.content, file.name, "measure it again")
