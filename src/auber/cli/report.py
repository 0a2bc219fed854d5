"""`auber report`: the tables of finished runs, the file to keep them in, and the page made from such files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from auber.cli import options, screen
from auber.errors import ConfigError

if TYPE_CHECKING:
    from auber.report import Written
    from auber.report.tables import Table

_WIDEST = 40  # characters of a table's cell; longer ones are sentences


def command(
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="DIR|FILE.json...",
            help="Folders with runs below them, such as a study's, and results files; all are put together.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Where the tables go. [default: report/ in DIR, if that is all]", show_default=False
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", help="Keep the runs in this results file, beside those in it.", show_default=False),
    ] = None,
    model_name: Annotated[
        str | None,
        typer.Option("--model-name", help="With --save: what to call the model instead.", show_default=False),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option("--page", help="Write this Markdown page from results files.", show_default=False),
    ] = None,
    json: options.Json = False,
) -> None:
    """Write the paper's tables from finished runs, with seeds, controls, intervals and a verdict in words.

    table1 (tasks), table2 (methods), table3 (ablations), comparisons (pooled), overfitting and costs, each as Markdown, CSV
    and LaTeX. Models and protocols are never mixed; runs without a result are named and left out, and a table that is
    not all its study asks for says so.

    A results file holds the finished runs of a study in a line each, with command, commit and device, and no weights.

    Example: auber report runs/table2 --save results/studies/table2.json; auber report results/studies/*.json --page docs/results.md
    """
    _check_together(places, out, save, model_name, page)
    if save is not None:
        _save(places or [], save, model_name, as_json=json)
    elif page is not None:
        _write_page(page, places or [], as_json=json)
    else:
        _write_tables(places or [], out, as_json=json)


def _check_together(
    places: list[Path] | None, out: Path | None, save: Path | None, model_name: str | None, page: Path | None
) -> None:
    """What may be asked for in one call."""
    given = [name for name, value in (("--out", out), ("--save", save), ("--page", page)) if value is not None]
    if len(given) > 1:
        raise ConfigError(f"{given[0]} and {given[1]} exclude each other; give one")
    if model_name is not None and save is None:
        raise ConfigError("--model-name goes with --save FILE, found it without; add --save or leave it out")
    if not places and page is None:
        raise ConfigError("a report needs runs, found nothing named; give folders or results files")
    for place in places or []:
        if page is not None and place.is_dir():
            raise ConfigError(
                f"--page takes results files, found the folder {place}; make one with 'auber report {place} --save FILE'"
            )


def _save(places: list[Path], path: Path, model_name: str | None, *, as_json: bool) -> None:
    from auber.report.results_file import save_results

    saved = [save_results(place, path, model_name) for place in places]
    if as_json:
        facts = [
            {"place": str(place), "added": each.added, "present": each.present, "left_out": len(each.left_out)}
            for place, each in zip(places, saved, strict=True)
        ]
        screen.print_json({"file": str(path), "runs": saved[-1].total, "saved": facts})
        return
    for place, each in zip(places, saved, strict=True):
        print(f"{place}: {each.added} added, {each.present} there already, {len(each.left_out)} without a result")
        for run in each.left_out:
            print(f"  left out: {run.folder} ({run.reason})")
    print(f"results: {path} ({saved[-1].total} runs and starts, {path.stat().st_size / 1024:.0f} KiB)")


def _write_page(page: Path, files: list[Path], *, as_json: bool) -> None:
    from auber.report.page import write_page

    write_page(page, files)
    if as_json:
        screen.print_json({"page": str(page), "files": [str(file) for file in files]})
    else:
        print(f"page: {page}")


def _write_tables(places: list[Path], out: Path | None, *, as_json: bool) -> None:
    from auber.report import summarise, write_report

    written = write_report(*places, out=out)
    if as_json:
        screen.print_json(summarise(written.report))
    else:
        _print(written)


def _print(written: Written) -> None:
    for table in written.tables:
        if table.name in ("table2", "table3", "comparisons", "overfitting"):
            _print_table(table)
    report = written.report
    for section in report.sections:
        lines = [f"careful: {row.task}, {row.method}: {flag}" for row in section.rows for flag in row.flags]
        for line in [*lines, *section.notes]:
            print(f"{section.model}, {section.protocol}: {line}")
        if section.coverage is not None and section.coverage.label is not None:
            print(f"{section.model}, {section.protocol}: {section.coverage.label}; missing:")
            for missing in section.coverage.missing:
                print(f"  {missing}")
    print(f"runs: {report.runs} finished, {len(report.left_out)} without a result; fine-tuned starts: {report.starts}")
    for run in report.left_out:
        print(f"  left out: {run.folder} ({run.reason})")
    print(f"tables: {written.files[0].parent}" if written.files else "tables: not written; --out DIR says where to")


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
