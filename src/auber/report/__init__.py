"""From a folder of runs to tables: results, typed rows, tables, renderers, each knowing only the one before.

The files are made from the results and nothing else, byte for byte the same each time. A new format is a function from a
`Table` to text and its line in `RENDERERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from auber.errors import RunError
from auber.report.analysis import MethodRow, Report, analyse
from auber.report.collect import collect
from auber.report.latex import render_latex
from auber.report.markdown import render_markdown
from auber.report.spreadsheet import render_csv
from auber.report.tables import Table, all_tables
from auber.runs import write_text
from auber.stats import verdict

RENDERERS: dict[str, Callable[[Table], str]] = {"md": render_markdown, "csv": render_csv, "tex": render_latex}

FOLDER = "report"


@dataclass(frozen=True)
class Written:
    """What a report found, its tables, and the files it wrote."""

    report: Report
    tables: tuple[Table, ...]
    files: tuple[Path, ...]


def write_report(folder: str | Path) -> Written:
    """Read the runs below a folder and write the tables into `report/` in it."""
    report = analyse(collect(folder))
    tables = all_tables(report)
    texts = {f"{table.name}.{suffix}": render(table) for table in tables for suffix, render in RENDERERS.items()}
    out = Path(folder) / FOLDER
    try:
        out.mkdir(exist_ok=True)
        for name, text in texts.items():
            write_text(out / name, text)
    except OSError as error:
        raise RunError(f"{out}: cannot be written ({error}); it must be a folder of its own") from error
    return Written(report, tables, tuple(out / name for name in texts))


def summarise(report: Report) -> dict[str, Any]:
    """The report as plain JSON, each comparison with its verdict."""
    return {
        "runs": report.runs,
        "starts": report.starts,
        "left_out": [asdict(run) for run in report.left_out],
        "tasks": [asdict(row) for row in report.tasks],
        "sections": [
            {
                "model": section.model,
                "protocol": section.protocol,
                "methods": [_with_verdict(row) for row in section.methods],
                "ablations": [_with_verdict(row) for row in section.ablations],
                "pooled": [
                    {**asdict(row), "verdict": verdict(row.comparison, counted="(task, seed) pairs")}
                    for row in section.pooled
                ],
                "notes": list(section.notes),
            }
            for section in report.sections
        ],
    }


def _with_verdict(row: MethodRow) -> dict[str, Any]:
    return {**asdict(row), "verdict": None if row.comparison is None else verdict(row.comparison)}
