"""`auber report`: finished runs as tables and an HTML page, and the file to keep them in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from auber.cli import options, screen
from auber.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from auber.report.analysis import Report
    from auber.report.runs import LeftOut
    from auber.report.tables import Table

_WIDE = ["95 % interval", "heads removed", "neurons removed"]  # columns for the page alone
_UNWRITTEN = "not written; choose a folder with --out DIR"


def command(
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN|DIR|FILE.json...",
            help="Runs, folders of runs such as a study's, results files (also of auber speed).",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of tables and page. [default: report/ in the one RUN or DIR]",
            show_default=False,
        ),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Add the runs to this results file.", show_default=False)
    ] = None,
    model_name: Annotated[
        str | None,
        typer.Option(help="With --save: another name of the model.", show_default=False),
    ] = None,
    notes: Annotated[
        list[str] | None,
        typer.Option(
            "--note",
            metavar="SENTENCE",
            help="With --save: a remark for readers of the numbers; may be repeated.",
            show_default=False,
        ),
    ] = None,
    open_page: Annotated[
        bool, typer.Option("--open", help="Show the HTML page in the browser.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Write an HTML page and tables of finished runs.

    One RUN gives its score, size and speed, what was removed, times and settings; several RUNs
    stand side by side; a DIR, such as a study's, gives the verdict over all its runs and the
    tables. The page is one file that needs no network, with each figure beside it as SVG and PDF.

    The tables: table1 (tasks), table2 (methods), table3 (ablations), comparisons (pooled),
    overfitting and costs, each as Markdown, CSV and LaTeX. Models and protocols are never mixed.
    Runs without a result are listed and left out, and incomplete tables are marked.

    A results file keeps the finished runs of a study, one line each, with command, commit and
    device but without weights.

    Example: auber report runs/rte --open; auber report runs/table2

    Keep:    auber report runs/table2 --save results/studies/table2.json
    """
    if not places:
        raise ConfigError("a report needs runs, found none; give folders or results files")
    for place in places:
        if place.is_file() and place.suffix != ".json":
            raise ConfigError(
                f"{place}: must be a folder or a results file (.json), found another file; name a "
                "run's --out"
            )
    misplaced: dict[str, object] = {"--out": out, "--open": open_page}
    problem = "and --save exclude each other; give one"
    if save is None:
        misplaced = {"--model-name": model_name, "--note": notes}
        problem = "needs --save FILE, found none; add --save"
    for option, value in misplaced.items():
        if value:
            raise ConfigError(f"{option} {problem}")
    if save is None:
        _write(places, out, open_page=open_page, as_json=json)
    else:
        _save(places, save, model_name, notes or [], as_json=json)


def _save(
    places: list[Path], path: Path, model_name: str | None, notes: list[str], *, as_json: bool
) -> None:
    from auber.report.results_file import save_results

    facts = []
    for place in places:
        saved = save_results(place, path, model_name, notes)
        counts = {"added": saved.added, "present": saved.present, "left_out": len(saved.left_out)}
        facts.append({"place": str(place), **counts})
        if not as_json:
            print(
                f"{place}: {saved.added} added, {saved.present} there already, "
                f"{len(saved.left_out)} without a result"
            )
            _print_left_out(saved.left_out)
    if as_json:
        screen.print_json({"file": str(path), "runs": saved.total, "saved": facts})
    else:
        size = path.stat().st_size / 1024
        print(f"results: {path} ({saved.total} runs and starts, {size:.0f} KiB)")


def _write(places: list[Path], out: Path | None, *, open_page: bool, as_json: bool) -> None:
    """Write the page, and the tables unless every place is a run."""
    import webbrowser

    from pydantic_core import to_jsonable_python

    from auber.report.page import make_page, write_page
    from auber.report.results_file import read_results_file
    from auber.report.run_tables import SPEED
    from auber.report.tables import FOLDER

    files = {place: read_results_file(place) for place in places if place.is_file()}
    extras = {place: file for place, file in files.items() if file.kind == SPEED}
    places = [place for place in places if place not in extras]
    if not places:
        raise ConfigError(
            "a report needs runs, found only results of other kinds; name the runs they belong to "
            "as well"
        )
    if out is None and len(places) == 1 and places[0].is_dir():
        out = places[0] / FOLDER
    if open_page and out is None:
        raise ConfigError("--open shows the page that --out writes, found no --out; add --out DIR")
    page = make_page(places, list(extras.values()))
    written = [] if out is None else [str(file) for file in write_page(page, out)]
    if as_json:
        facts = {"verdicts": page.verdicts, **(vars(page.report) if page.report else {})}
        facts |= {"page": written[0] if written else None, "figures": written[1:]}
        screen.print_json(to_jsonable_python(facts))
    else:
        for verdict in page.verdicts:
            label = f" ({verdict.label})" if verdict.label else ""
            print(screen.wrap(f"{verdict.about}{label}: {verdict.headline}", later="  "))
            for point in verdict.points:
                print(screen.wrap(point, first="  ", later="    "))
        for grid in page.models:
            cells = grid.cells.drop(columns=_WIDE, errors="ignore")
            screen.print_table([*cells], cells.to_numpy().tolist(), title=grid.title)
        if page.report is not None:
            _print_report(page.report, page.tables)
            print(f"tables: {out or _UNWRITTEN}")
        print(f"page: {f'{written[0]}, figures beside it as SVG and PDF' if out else _UNWRITTEN}")
    if open_page:
        webbrowser.open(Path(written[0]).resolve().as_uri())


def _print_report(report: Report, tables: Iterable[Table]) -> None:
    """Print the tables of methods and of ablations, and warnings."""
    from auber.report.records import CONTROL, SUBJECT

    for table in tables:
        for grid in table.grids(brief=True).values() if table.brief else ():
            screen.print_table([*grid.cells], grid.cells.to_numpy().tolist(), title=grid.title)
    if report.sections:
        print(
            f"P: heads removed; difference to {CONTROL}, in table 3 to {SUBJECT}; in points, 100 "
            "times the metric."
        )
    for section in report.sections:
        warnings = [
            f"warning: {row['task']}, {row['method']}: {flag}"
            for row in section.rows
            for flag in row["flags"]
        ]
        for line in (*warnings, *section.notes):
            print(screen.wrap(f"{section.name}: {line}", later="  "))
    print(
        f"runs: {report.runs} finished, {len(report.left_out)} without a result; "
        f"fine-tuned starts: {report.starts}"
    )
    _print_left_out(report.left_out)


def _print_left_out(runs: Iterable[LeftOut]) -> None:
    for run in runs:
        print(f"  left out: {run.folder} ({run.reason})")
