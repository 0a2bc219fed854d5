"""From runs to tables and a page: records, typed rows, tables, renderers, each knowing only the one before.

Everything is made from the results and nothing else, byte for byte the same each time. A new format is a function from a
`Table` to text and its line in `RENDERERS`; a new part of the page is a line in `auber.report.page.SECTIONS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from auber.errors import RunError
from auber.metrics.statistics import verdict
from auber.report.analysis import MethodRow, PooledRow, Report, Section, analyse
from auber.report.collect import collect
from auber.report.columns import Table
from auber.report.latex import render_latex
from auber.report.markdown import render_markdown
from auber.report.spreadsheet import render_csv
from auber.report.tables import all_tables, gap_verdict
from auber.system.files import write_text

RENDERERS: dict[str, Callable[[Table], str]] = {
    "md": render_markdown,
    "csv": render_csv,
    "tex": render_latex,
}

FOLDER = "report"


@dataclass(frozen=True)
class Written:
    """What a report found, its tables, and the files it wrote."""

    report: Report
    tables: tuple[Table, ...]
    files: tuple[Path, ...]


def write_report(*places: str | Path, out: str | Path | None = None) -> Written:
    """Read the runs of folders and results files and write the tables into `out`.

    Without `out` those of one folder go into `report/` in it; those of several places, or of a file, are not written.
    """
    report = analyse(collect(*places))
    tables = all_tables(report)
    if out is None and len(places) == 1 and Path(places[0]).is_dir():
        out = Path(places[0]) / FOLDER
    return Written(report, tables, () if out is None else _write(tables, Path(out)))


def _write(tables: tuple[Table, ...], out: Path) -> tuple[Path, ...]:
    texts = {
        f"{table.name}.{suffix}": render(table)
        for table in tables
        for suffix, render in RENDERERS.items()
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_text(out / name, text)
    except OSError as error:
        raise RunError(
            f"{out}: cannot be written ({error}); it must be a folder of its own"
        ) from error
    return tuple(out / name for name in texts)


def summarise(report: Report) -> dict[str, Any]:
    """The report as plain JSON, each comparison with its verdict."""
    return {
        "runs": report.runs,
        "starts": report.starts,
        "left_out": [asdict(run) for run in report.left_out],
        "tasks": [asdict(row) for row in report.tasks],
        "sections": [_summarise(section) for section in report.sections],
    }


def _summarise(section: Section) -> dict[str, Any]:
    return {
        "model": section.model,
        "protocol": section.protocol,
        "coverage": None if section.coverage is None else asdict(section.coverage),
        "methods": [_with_verdict(row) for row in section.methods],
        "ablations": [_with_verdict(row) for row in section.ablations],
        "pooled": [_pooled(row) for row in section.pooled],
        "learned": [_pooled(row) for row in section.learned],
        "gaps": [{**asdict(row), "verdict": gap_verdict(row.comparison)} for row in section.gaps],
        "notes": list(section.notes),
    }


def _pooled(row: PooledRow) -> dict[str, Any]:
    return {**asdict(row), "verdict": verdict(row.comparison, counted="(task, seed) pairs")}


def _with_verdict(row: MethodRow) -> dict[str, Any]:
    return {**asdict(row), "verdict": None if row.comparison is None else verdict(row.comparison)}
