"""The report as one HTML page: runs side by side, or a study with its answer first, with every figure as SVG and PDF beside it.

Made from the runs and nothing else, byte for byte the same each time; it opens from disk and asks the network for nothing.
`model` reads runs into views, `run_page` and `study_page` make a page of them, `render` and `files` write it. The figures
(`maps`, `lines`, `bars`) are functions of plain numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from auber.report.html.files import can_make_pdf, write_page
from auber.report.html.model import read_runs, read_study
from auber.report.html.page import Page, distinct
from auber.report.html.run_page import make_run_page
from auber.report.html.study_page import make_study_page
from auber.report.results_file import ResultsFile
from auber.run.files import is_run

__all__ = ["can_make_pdf", "make_page", "write_page"]


def make_page(places: Sequence[str | Path], extras: Sequence[ResultsFile] = ()) -> Page:
    """The page of some places: of runs side by side where each is one run's folder, else of all their runs together.

    `extras` are results of other kinds to show beside them, of `auber regret` and `auber speed`.
    """
    if all(is_run(place) for place in places):
        return distinct(make_run_page(read_runs(places), extras))
    return distinct(make_study_page(read_study(places), extras))
