"""`auber report`: the tables of a folder of runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from auber.cli import options, screen

if TYPE_CHECKING:
    from auber.report import Written
    from auber.report.tables import Table

_WIDEST = 40  # characters of a table's cell; longer ones are sentences


def command(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder with runs below it, such as a study's.", show_default=False)
    ],
    json: options.Json = False,
) -> None:
    """Write the paper's tables from finished runs, with seeds, controls, intervals and a verdict in words.

    Into DIR/report: table1 (tasks), table2 (methods), table3 (ablations), comparisons (pooled) and costs, each as
    Markdown, CSV and LaTeX. Models and protocols are never mixed; runs without a result are named and left out.

    Example: auber report runs/table2
    """
    from auber.report import summarise, write_report

    written = write_report(folder)
    if json:
        screen.print_json(summarise(written.report))
    else:
        _print(written)


def _print(written: Written) -> None:
    for table in written.tables:
        if table.name in ("table2", "table3", "comparisons"):
            _print_table(table)
    report = written.report
    for section in report.sections:
        lines = [f"careful: {row.task}, {row.method}: {flag}" for row in section.rows for flag in row.flags]
        for line in [*lines, *section.notes]:
            print(f"{section.model}, {section.protocol}: {line}")
    print(f"runs: {report.runs} finished, {len(report.left_out)} without a result; fine-tuned starts: {report.starts}")
    for run in report.left_out:
        print(f"  left out: {run.folder} ({run.reason})")
    print(f"tables: {written.files[0].parent}")


def _print_table(table: Table) -> None:
    """The columns a terminal has room for, and below them, line by line, what is said in sentences."""
    from auber.report.tables import Detail, plain

    brief = [place for place, column in enumerate(table.columns) if column.detail == Detail.BRIEF]
    for section in table.sections:
        cells = {place: [plain(table.columns[place], row[place]) for row in section.rows] for place in brief}
        told = [place for place in brief if any(len(cell) > _WIDEST for cell in cells[place])]
        shown = [place for place in brief if place not in told]
        rows = [list(row) for row in zip(*(cells[place] for place in shown), strict=True)]
        titles = [table.columns[place].title for place in shown]
        screen.print_table(titles, rows, title=f"{table.title}; {section.title}")
        for place in told:
            print(f"\n{table.columns[place].title}:")
            for row, sentence in zip(rows, cells[place], strict=True):
                if sentence:
                    print(f"  {', '.join(row[:2])}: {sentence}")
        print()
