"""`auber report`: finished runs as tables and an HTML page, and the file to keep them in."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from auber.cli import options, screen
from auber.errors import ConfigError

if TYPE_CHECKING:
    from auber.report.analysis import Report
    from auber.report.results_file import ResultsFile
    from auber.report.tables import Table

_WIDEST = 40  # characters of a cell; longer ones are printed below the table

_Places = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="RUN|DIR|FILE.json...",
        help="Runs, folders of runs such as a study's, results files (also of speed, regret).",
        show_default=False,
    ),
]
_Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Folder of tables and page. [default: report/ in the one RUN or DIR]",
        show_default=False,
    ),
]
_Save = Annotated[
    Path | None,
    typer.Option("--save", help="Add the runs to this results file.", show_default=False),
]
_ModelName = Annotated[
    str | None,
    typer.Option(
        "--model-name", help="With --save: another name of the model.", show_default=False
    ),
]
_Notes = Annotated[
    list[str] | None,
    typer.Option(
        "--note",
        metavar="SENTENCE",
        help="With --save: a remark for readers of the numbers; may be repeated.",
        show_default=False,
    ),
]
_OpenPage = Annotated[bool, typer.Option("--open", help="Show the HTML page in the browser.")]


def command(
    places: _Places = None,
    out: _Out = None,
    save: _Save = None,
    model_name: _ModelName = None,
    notes: _Notes = None,
    open_page: _OpenPage = False,
    json: options.Json = False,
) -> None:
    """Write an HTML page of finished runs, and the paper's tables with intervals and verdicts.

    One RUN gives its heads, searches, Q-values, times and settings; several RUNs stand side by
    side; a DIR, such as a study's, gives the verdict over all its runs and the tables. The page is
    one file that needs no network, with each figure beside it as SVG and PDF.

    The tables: table1 (tasks), table2 (methods), table3 (ablations), comparisons (pooled),
    overfitting and costs, each as Markdown, CSV and LaTeX. Models and protocols are never mixed.
    Runs without a result are listed and left out, and incomplete tables are marked.

    A results file keeps the finished runs of a study, one line each, with command, commit and
    device but without weights.

    Example: auber report runs/rte --open; auber report runs/table2

    Keep:    auber report runs/table2 --save results/studies/table2.json
    """
    places = places or []
    _check(places, out, save, model_name, notes, open_page=open_page)
    if save is not None:
        _save(places, save, model_name, notes or [], as_json=json)
    else:
        _write(places, out, open_page=open_page, as_json=json)


def _check(
    places: list[Path],
    out: Path | None,
    save: Path | None,
    model_name: str | None,
    notes: list[str] | None,
    *,
    open_page: bool,
) -> None:
    if out is not None and save is not None:
        raise ConfigError("--out and --save exclude each other; give one")
    if not places:
        raise ConfigError("a report needs runs, found nothing named; give folders or results files")
    for place in places:
        if not place.exists():
            raise ConfigError(f"{place}: no such folder or results file; give what holds runs")
        if place.is_file() and place.suffix != ".json":
            raise ConfigError(
                f"{place}: must be a folder or a results file (.json), found another file; name a "
                "run's --out"
            )
    for option, value in (("--model-name", model_name), ("--note", notes)):
        if value and save is None:
            raise ConfigError(
                f"{option} goes with --save FILE, found it without; add --save or leave it out"
            )
    if open_page and save is not None:
        raise ConfigError("--open shows the HTML page, which --save does not write; leave it out")


def _save(
    places: list[Path], path: Path, model_name: str | None, notes: list[str], *, as_json: bool
) -> None:
    from auber.report.results_file import save_results

    saved = [save_results(place, path, model_name, notes) for place in places]
    total = saved[-1].total
    if as_json:
        facts = [
            {
                "place": str(place),
                "added": s.added,
                "present": s.present,
                "left_out": len(s.left_out),
            }
            for place, s in zip(places, saved, strict=True)
        ]
        screen.print_json({"file": str(path), "runs": total, "saved": facts})
        return
    for place, each in zip(places, saved, strict=True):
        counts = f"{each.added} added, {each.present} there already"
        print(f"{place}: {counts}, {len(each.left_out)} without a result")
        for run in each.left_out:
            print(f"  left out: {run.folder} ({run.reason})")
    print(f"results: {path} ({total} runs and starts, {path.stat().st_size / 1024:.0f} KiB)")


def _write(places: list[Path], out: Path | None, *, open_page: bool, as_json: bool) -> None:
    """Write the page, and the tables unless every place is a run."""
    from auber.report.html import make_page
    from auber.report.html.page import write_page
    from auber.report.runs import is_run
    from auber.report.tables import FOLDER

    held, extras = _split(places)
    if out is None and len(held) == 1 and held[0].is_dir():
        out = held[0] / FOLDER
    if open_page and out is None:
        raise ConfigError("--open needs a page that is written, found no --out; add --out DIR")
    page = make_page(held, extras)
    if all(map(is_run, held)):
        facts: dict[str, Any] = {"verdicts": [asdict(verdict) for verdict in page.verdicts]}
        for verdict in () if as_json else page.verdicts:
            print(f"{verdict.about}: {verdict.headline}")
            for point in verdict.points:
                print(screen.wrap(point, first="  ", later="    "))
    else:
        facts = _write_tables(held, out, as_json=as_json)
    files = [] if out is None else [str(file) for file in write_page(page, out)]
    if as_json:
        screen.print_json({**facts, "page": files[0] if files else None, "figures": files[1:]})
    elif files:
        print(f"page: {files[0]}, figures beside it as SVG and PDF")
    else:
        print("page: not written; choose a folder with --out DIR")
    if open_page:
        import webbrowser

        webbrowser.open(Path(files[0]).resolve().as_uri())


def _split(places: list[Path]) -> tuple[list[Path], list[ResultsFile]]:
    """Return the places that hold runs, and results of other commands."""
    from auber.report.html.shared import EXTRAS
    from auber.report.results_file import read_results_file

    files = {place: read_results_file(place) for place in places if place.is_file()}
    extras = {place: file for place, file in files.items() if file.kind in EXTRAS}
    held = [place for place in places if place not in extras]
    if not held:
        raise ConfigError(
            "a report needs runs, found only results of other kinds; name the runs they "
            "belong to as well"
        )
    return held, list(extras.values())


def _write_tables(places: list[Path], out: Path | None, *, as_json: bool) -> dict[str, Any]:
    from auber.report.analysis import analyse
    from auber.report.paper_tables import all_tables, summarise
    from auber.report.results_file import collect
    from auber.report.tables import write_tables

    report = analyse(collect(*places))
    tables = all_tables(report)
    if out is not None:
        write_tables(tables, out)
    if not as_json:
        _print(report, tables)
        print(f"tables: {out or 'not written; choose a folder with --out DIR'}")
    return summarise(report)


def _print(report: Report, tables: tuple[Table, ...]) -> None:
    for table in tables:
        if table.name in ("table2", "table3", "comparisons", "overfitting"):
            _print_table(table)
    if report.sections:
        print("P: heads removed; gap: train minus dev; scores in points, 100 times the metric.")
    for section in report.sections:
        name = f"{section.model}, {section.protocol}"
        for row in section.rows:
            for flag in row.flags:
                print(f"{name}: careful: {row.task}, {row.method}: {flag}")
        for note in section.notes:
            print(f"{name}: {note}")
        if section.missing and section.coverage is not None:
            print("\n  ".join([f"{name}: {section.coverage.label}; missing:", *section.missing]))
    left_out = len(report.left_out)
    starts = f"fine-tuned starts: {report.starts}"
    print(f"runs: {report.runs} finished, {left_out} without a result; {starts}")
    for run in report.left_out:
        print(f"  left out: {run.folder} ({run.reason})")


def _print_table(table: Table) -> None:
    """Print narrow columns as a table, and long sentences line by line below it."""
    for shown in table.sections(brief=True):
        # What all are compared with is in the title of some tables.
        cells = {
            title: column.tolist()
            for title, column in shown.cells.items()
            if not (title == "against" and column.isin([table.title.split(" against ")[-1]]).all())
        }
        long = {title for title in cells if any(len(cell) > _WIDEST for cell in cells[title])}
        narrow = {title: column for title, column in cells.items() if title not in long}
        rows = [list(row) for row in zip(*narrow.values(), strict=True)]
        screen.print_table(list(narrow), rows, title=f"{table.title}; {shown.title}")
        names = [title for title in ("task", "method", "against", "tasks") if title in narrow]
        for title in cells:
            if title in long:
                print(f"\n{title}:")
                for index, sentence in enumerate(cells[title]):
                    about = ", ".join(narrow[name][index] for name in names)
                    if sentence:
                        print(screen.wrap(f"{about}: {sentence}", first="  ", later="    "))
        print()
