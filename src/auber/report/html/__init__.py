"""The report as one HTML page that opens from disk: runs side by side, or a study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from auber.report.html.page import Page, make_run_page, make_study_page
from auber.report.layers import read_runs, read_sources
from auber.report.results_file import ResultsFile
from auber.report.runs import is_run


def make_page(places: Sequence[str | Path], extras: Sequence[ResultsFile] = ()) -> Page:
    """Return the page of runs side by side if each place is one run, else of all runs together.

    `extras` are results of other commands to show beside them.
    """
    if all(is_run(place) for place in places):
        return make_run_page(read_runs(places), extras)
    return make_study_page(*read_sources(places), extras)
