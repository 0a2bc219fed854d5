"""`auber report`: finished runs as tables and an HTML page, the file to keep them in, and the page of kept files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from auber.cli import options, screen
from auber.errors import ConfigError

if TYPE_CHECKING:
    from auber.report import Written
    from auber.report.columns import Table
    from auber.report.html.page import Page
    from auber.report.results_file import ResultsFile

_WIDEST = 40  # characters of a table's cell; longer ones are sentences

_Places = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="RUN|DIR|FILE.json...",
        help="Runs, folders with runs below them, such as a study's, and results files, also of regret and speed.",
        show_default=False,
    ),
]
_Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Where tables and page go. [default: report/ in the one RUN or DIR]",
        show_default=False,
    ),
]
_Save = Annotated[
    Path | None,
    typer.Option(
        "--save", help="Keep the runs in this results file, beside those in it.", show_default=False
    ),
]
_ModelName = Annotated[
    str | None,
    typer.Option(
        "--model-name", help="With --save: what to call the model instead.", show_default=False
    ),
]
_Notes = Annotated[
    list[str] | None,
    typer.Option(
        "--note",
        metavar="SENTENCE",
        help="With --save: what a reader of the numbers should know; may be repeated.",
        show_default=False,
    ),
]
_Page = Annotated[
    Path | None,
    typer.Option("--page", help="Write this Markdown page from results files.", show_default=False),
]
_OpenPage = Annotated[bool, typer.Option("--open", help="Show the HTML page in the browser.")]


def command(
    places: _Places = None,
    out: _Out = None,
    save: _Save = None,
    model_name: _ModelName = None,
    notes: _Notes = None,
    page: _Page = None,
    open_page: _OpenPage = False,
    json: options.Json = False,
) -> None:
    """Write an HTML page of finished runs, and the paper's tables with seeds, controls, intervals and a verdict in words.

    One RUN gives its heads, searches, agent's values, times and settings; several RUNs stand side by side; a DIR, such as
    a study's, gives the answer over all its runs and the tables. The page is one file that needs no network; each figure lies
    beside it as SVG and, with the extra 'report', as PDF.

    The tables: table1 (tasks), table2 (methods), table3 (ablations), comparisons (pooled), overfitting and costs, each as Markdown, CSV
    and LaTeX. Models and protocols are never mixed; runs without a result are named and left out, and a table that is
    not all its study asks for says so.

    A results file holds the finished runs of a study in a line each, with command, commit and device, and no weights.

    Example: auber report runs/rte --open; auber report runs/rte-a runs/rte-b --out both; auber report runs/table2

    Keep:    auber report runs/table2 --save results/studies/table2.json; auber report results/studies/*.json --page docs/results.md
    """
    places = places or []
    _check_together(places, out, save, page)
    _check_with_save(save, model_name, notes)
    if open_page and (save is not None or page is not None):
        raise ConfigError(
            "--open shows the HTML page, which --save and --page do not write; leave it out"
        )
    if save is not None:
        _save(places, save, model_name, notes or [], as_json=json)
    elif page is not None:
        _write_page(page, places, as_json=json)
    else:
        _write_report(places, out, open_page=open_page, as_json=json)


def _check_together(
    places: list[Path], out: Path | None, save: Path | None, page: Path | None
) -> None:
    """What may be asked for in one call."""
    given = [
        name
        for name, value in (("--out", out), ("--save", save), ("--page", page))
        if value is not None
    ]
    if len(given) > 1:
        raise ConfigError(f"{given[0]} and {given[1]} exclude each other; give one")
    if not places and page is None:
        raise ConfigError("a report needs runs, found nothing named; give folders or results files")
    for place in places:
        if not place.exists():
            raise ConfigError(f"{place}: no such folder or results file; give what holds runs")
        if place.is_file() and place.suffix != ".json":
            raise ConfigError(
                f"{place}: must be a folder or a results file (.json), found another file; name a run's --out"
            )
        if page is not None and place.is_dir():
            raise ConfigError(
                f"--page takes results files, found the folder {place}; make one with 'auber report {place} --save FILE'"
            )


def _check_with_save(save: Path | None, model_name: str | None, notes: list[str] | None) -> None:
    """What is kept in a results file alone."""
    for option, value in (("--model-name", model_name), ("--note", notes)):
        if value and save is None:
            raise ConfigError(
                f"{option} goes with --save FILE, found it without; add --save or leave it out"
            )


def _save(
    places: list[Path], path: Path, model_name: str | None, notes: list[str], *, as_json: bool
) -> None:
    from auber.report.results_file import save_results

    saved = [save_results(place, path, model_name, notes) for place in places]
    if as_json:
        facts = [
            {
                "place": str(place),
                "added": each.added,
                "present": each.present,
                "left_out": len(each.left_out),
            }
            for place, each in zip(places, saved, strict=True)
        ]
        screen.print_json({"file": str(path), "runs": saved[-1].total, "saved": facts})
        return
    for place, each in zip(places, saved, strict=True):
        print(
            f"{place}: {each.added} added, {each.present} there already, {len(each.left_out)} without a result"
        )
        for run in each.left_out:
            print(f"  left out: {run.folder} ({run.reason})")
    print(
        f"results: {path} ({saved[-1].total} runs and starts, {path.stat().st_size / 1024:.0f} KiB)"
    )


def _write_page(page: Path, files: list[Path], *, as_json: bool) -> None:
    from auber.report.page import write_page

    write_page(page, files)
    if as_json:
        screen.print_json({"page": str(page), "files": [str(file) for file in files]})
    else:
        print(f"page: {page}")


def _write_report(places: list[Path], out: Path | None, *, open_page: bool, as_json: bool) -> None:
    """The page, and the tables unless every place is one run's folder."""
    from auber.report.html import can_make_pdf, make_page, write_page
    from auber.run.files import is_run

    held, extras = _with_extras(places)
    if out is None and len(held) == 1 and held[0].is_dir():
        out = held[0] / "report"
    if open_page and out is None:
        raise ConfigError("--open needs a page that is written, found no --out; add --out DIR")
    page = make_page(held, extras)
    facts = (
        _show_verdicts(page, as_json=as_json)
        if all(map(is_run, held))
        else _write_tables(held, out, as_json=as_json)
    )
    files = () if out is None else write_page(page, out, pdf=can_make_pdf())
    if as_json:
        screen.print_json(
            {
                **facts,
                "page": str(files[0]) if files else None,
                "figures": [str(file) for file in files[1:]],
            }
        )
    else:
        _print_page(files)
    if open_page:
        import webbrowser

        webbrowser.open(files[0].resolve().as_uri())


def _with_extras(places: list[Path]) -> tuple[list[Path], list[ResultsFile]]:
    """What holds runs, and results of other kinds to be shown beside them."""
    from auber.report.html.details import EXTRAS
    from auber.report.results_file import read_results_file

    held, extras = [], []
    for place in places:
        file = read_results_file(place) if place.is_file() else None
        if file is not None and file.kind in EXTRAS:
            extras.append(file)
        else:
            held.append(place)
    if not held:
        raise ConfigError(
            "a report needs runs, found only results of other kinds; name the runs they belong to as well"
        )
    return held, extras


def _show_verdicts(page: Page, *, as_json: bool) -> dict[str, Any]:
    """What is to be known first of some runs."""
    if not as_json:
        for verdict in page.verdicts:
            print(f"{verdict.about}: {verdict.headline}")
            for point in verdict.points:
                print(screen.wrap(point, first="  ", later="    "))
    return {"verdicts": [asdict(verdict) for verdict in page.verdicts]}


def _write_tables(places: list[Path], out: Path | None, *, as_json: bool) -> dict[str, Any]:
    from auber.report import summarise, write_report

    written = write_report(*places, out=out)
    if not as_json:
        _print(written)
    return summarise(written.report)


def _print_page(files: tuple[Path, ...]) -> None:
    if not files:
        print("page: not written; --out DIR says where to")
        return
    has_pdf = any(file.suffix == ".pdf" for file in files)
    words = (
        "SVG and PDF"
        if has_pdf
        else "SVG (PDF too with the extra 'report': pip install 'auber[report]')"
    )
    print(f"page: {files[0]}, figures beside it as {words}")


def _print(written: Written) -> None:
    for table in written.tables:
        if table.name in ("table2", "table3", "comparisons", "overfitting"):
            _print_table(table)
    report = written.report
    if report.sections:
        print("P: heads removed; gap: train minus dev; scores in points, 100 times the metric.")
    for section in report.sections:
        lines = [
            f"careful: {row.task}, {row.method}: {flag}"
            for row in section.rows
            for flag in row.flags
        ]
        for line in [*lines, *section.notes]:
            print(f"{section.model}, {section.protocol}: {line}")
        if section.coverage is not None and section.coverage.label is not None:
            print(f"{section.model}, {section.protocol}: {section.coverage.label}; missing:")
            for missing in section.coverage.missing:
                print(f"  {missing}")
    print(
        f"runs: {report.runs} finished, {len(report.left_out)} without a result; fine-tuned starts: {report.starts}"
    )
    for run in report.left_out:
        print(f"  left out: {run.folder} ({run.reason})")
    print(
        f"tables: {written.files[0].parent}"
        if written.files
        else "tables: not written; --out DIR says where to"
    )


def _print_table(table: Table) -> None:
    """The columns a terminal has room for, and below them, line by line, what is said in sentences."""
    from auber.report.columns import Detail, plain

    for section in table.sections:
        brief = [
            place
            for place, column in enumerate(table.columns)
            if column.detail == Detail.BRIEF
            # Whom all are compared with is in the title already.
            and not (
                column.title == "against"
                and all(f"against {row[place]}" in table.title for row in section.rows)
            )
        ]
        cells = {
            place: [plain(table.columns[place], row[place]) for row in section.rows]
            for place in brief
        }
        told = [place for place in brief if any(len(cell) > _WIDEST for cell in cells[place])]
        shown = [place for place in brief if place not in told]
        rows = [list(row) for row in zip(*(cells[place] for place in shown), strict=True)]
        titles = [table.columns[place].title for place in shown]
        names = [
            index
            for index, title in enumerate(titles)
            if title in ("task", "method", "against", "tasks")
        ]
        screen.print_table(titles, rows, title=f"{table.title}; {section.title}")
        for place in told:
            print(f"\n{table.columns[place].title}:")
            for row, sentence in zip(rows, cells[place], strict=True):
                if sentence:
                    print(
                        screen.wrap(
                            f"{', '.join(row[index] for index in names)}: {sentence}",
                            first="  ",
                            later="    ",
                        )
                    )
        print()
