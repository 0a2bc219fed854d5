"""What stands in a run's files stays text in what is made of them: no formula in a spreadsheet, no markup in a page."""

from __future__ import annotations

import csv
import io

import pytest

from auber.report.columns import Column, Table, TableSection
from auber.report.html.model import read_runs
from auber.report.html.render import render_html
from auber.report.html.run_page import make_run_page
from auber.report.spreadsheet import render_csv
from tests.report.results import make_result, write_run

FORMULAS = [
    "=1+1",
    "=a\r=1",
    "+1",
    "-1+cmd|' /C calc'!A0",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    '=HYPERLINK("http://x","y")',
]
MARKUP = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><b>x",
    "{{ 7 * 7 }}",
    "javascript:alert(1)",
]


@pytest.mark.parametrize("text", FORMULAS)
@pytest.mark.parametrize("kind", ["text", "sentence"])
def test_no_cell_is_a_formula(text, kind):
    table = Table("t", "T", (Column("name", kind),), (TableSection(text, text, ((text,),)),))
    (_, *rows) = list(csv.reader(io.StringIO(render_csv(table), newline="")))
    assert rows
    for cell in (cell for row in rows for cell in row):
        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r")), cell
        assert cell == f"'{text}".replace("\r", " ")


def test_numbers_stay_numbers():
    table = Table("t", "T", (Column("n", "number"),), (TableSection(None, None, ((-1.5,),)),))
    assert render_csv(table).splitlines() == ["n", "-1.5"]


@pytest.mark.parametrize("text", MARKUP)
def test_a_page_shows_markup_as_text(tmp_path, text):
    result = make_result(
        "rte",
        "auber",
        0,
        0.6,
        model=text,
        command=f"auber prune --model {text!r}",
        data=text,
        start=text,
    )
    result["provenance"]["device"] = text
    result["config"]["agent.choose"] = text
    page = render_html(make_run_page(read_runs([write_run(tmp_path, "run", result)])))
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert "</style><b>" not in page
    assert 'href="javascript:' not in page
    assert "{{ 7 * 7 }}" in page or text != "{{ 7 * 7 }}"  # shown, not computed
