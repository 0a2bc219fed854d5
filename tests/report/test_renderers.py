from __future__ import annotations

import csv
import io
import re

import pytest

from auber.report import RENDERERS
from auber.report.columns import Column, Detail, Table, TableSection
from auber.report.latex import render_latex
from auber.report.markdown import render_markdown
from auber.report.spreadsheet import render_csv

NASTY = "=SUM(A1)|<b>_x_*[y](z)&#%$^~\\{}`"

TABLE = Table(
    "t",
    "Title_1",
    (
        Column("name"),
        Column("words", "sentence"),
        Column("n", "number"),
        Column("dev", "spread", 2),
        Column("interval", "range", 1, signed=True),
        Column("p", "number", 4, detail=Detail.DATA),
    ),
    (
        TableSection(
            "m_1",
            "seen",
            ((NASTY, "95 % of", 3, (80.1234567, 1.0), (-1.0, 2.0), 0.03125),),
            ("a note",),
        ),
        TableSection("m_2", "heldout", (("-b", None, -4, (1.0, None), None, None),)),
    ),
    ("for all",),
)
EMPTY = Table("t", "Title", (Column("name"),), (), empty="Nothing here.")


def test_markdown():
    assert render_markdown(TABLE) == (
        "# Title\\_1\n\n"
        "## m\\_1, protocol seen\n\n"
        "| name | words | n | dev | interval |\n"
        "| --- | --- | --: | --: | --: |\n"
        "| =SUM(A1)\\|\\<b\\>\\_x\\_\\*\\[y\\](z)\\&\\#%\\$^\\~\\\\{}\\` | 95 % of | 3 | 80.12 ± 1.00 | -1.0 to +2.0 |\n\n"
        "- a note\n\n"
        "## m\\_2, protocol heldout\n\n"
        "| name | words | n | dev | interval |\n"
        "| --- | --- | --: | --: | --: |\n"
        "| -b |  | -4 | 1.00 |  |\n\n"
        "- for all\n"
    )


def test_csv():
    rows = list(csv.reader(io.StringIO(render_csv(TABLE))))
    assert rows == [
        [
            "model",
            "protocol",
            "name",
            "words",
            "n",
            "dev",
            "dev deviation",
            "interval low",
            "interval high",
            "p",
        ],
        ["m_1", "seen", f"'{NASTY}", "95 % of", "3", "80.123457", "1", "-1", "2", "0.03125"],
        ["m_2", "heldout", "'-b", "", "-4", "1", "", "", "", ""],
    ]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x"])
def test_csv_text_is_no_formula_but_numbers_are_numbers(text):
    table = Table(
        "t",
        "T",
        (Column("a"), Column("b", "number")),
        (TableSection(text, "seen", ((text, -1.5),)),),
    )
    assert list(csv.reader(io.StringIO(render_csv(table))))[1] == [
        f"'{text}",
        "seen",
        f"'{text}",
        "-1.5",
    ]


def test_latex():
    text = render_latex(TABLE)
    assert text.count(r"\begin{table*}") == text.count(r"\end{table*}") == 2
    assert r"\caption{Title\_1; m\_1, protocol seen. a note for all}" in text
    assert r"\begin{tabular}{lp{0.22\linewidth}rrr}" in text
    assert (
        r"=SUM(A1)\textbar{}\textless{}b\textgreater{}\_x\_{*}{[}y{]}(z)\&\#\%\$\textasciicircum{}\textasciitilde{}"
        r"\textbackslash{}\{\}` & 95 \% of & 3 & 80.12 $\pm$ 1.00 & $-$1.0 to +2.0 \\"
    ) in text
    assert r"-b &  & $-$4 & 1.00 &  \\" in text


def test_latex_is_balanced():
    text = re.sub(r"\\[{}]", "", render_latex(TABLE))
    assert text.count("{") == text.count("}")
    assert re.sub(r"\\\$", "", text).count("$") % 2 == 0
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {4}


def test_an_empty_table_says_so():
    assert render_markdown(EMPTY) == "# Title\n\nNothing here.\n"
    assert "% Nothing here." in render_latex(EMPTY)
    assert render_csv(EMPTY) == "name\n"


def test_every_renderer_gives_the_same_text_each_time():
    for render in RENDERERS.values():
        assert render(TABLE) == render(TABLE)
        assert render(TABLE).endswith("\n")
