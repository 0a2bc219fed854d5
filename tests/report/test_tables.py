from __future__ import annotations

import csv
import io
import re

import pandas as pd
import pytest

from auber.report.tables import Grid, SectionNotes, Table, to_csv, to_latex, to_markdown

NASTY = "=SUM(A1)|<b>_x_*[y](z)&#%$^~\\{}`"
LONG = "a sentence of more than forty characters, 95 % of it"

DATA = pd.DataFrame(
    [
        ("m_1", "seen", NASTY, LONG, 3, 80.1234567, 1.0, -1.0, 2.0, 0.03125),
        ("m_2", "heldout", "-b", None, -4, 1.0, None, None, None, None),
    ],
    columns=[
        "model", "protocol", "name", "words", "pairs", "dev", "dev deviation",
        "difference interval low", "difference interval high", "p",
    ],
    dtype=object,
)  # fmt: skip
TABLE = Table(
    "t",
    "Title_1",
    DATA,
    hidden=("p",),
    brief=("name", "dev"),
    parts={
        ("m_1", "seen"): SectionNotes("m_1, protocol seen", "incomplete", ("a note",)),
        ("m_2", "heldout"): SectionNotes("m_2"),
    },
    notes=("for all",),
)
EMPTY = Table("t", "Title", pd.DataFrame(columns=["name"]), empty="Nothing here.")


@pytest.mark.parametrize(
    ("column", "ends", "values", "text"),
    [
        ("task", (), (None,), ""),
        ("train rows", (), (3668,), "3668"),
        ("dev", (), (84.065,), "84.06"),
        ("gap of original+tuning", (), (1.256,), "+1.26"),
        ("difference", (), (-0.004,), "0.00"),
        ("gap corrected p", (), (0.5,), "0.5000"),
        ("published P", (), (20,), "20"),
        ("P", (" deviation",), (84.26, 0.74), "84.3 ± 0.7"),
        ("P", (" deviation",), (84.26, None), "84.3"),
        ("gap", (" deviation",), (4.256, 0.744), "+4.26 ± 0.74"),
        ("difference interval", (" low", " high"), (-0.5, 2.0), "-0.50 to +2.00"),
        ("dev majority class", (" low", " high"), (50.001, 50.004), "50.00"),
        ("dev interval", (" low", " high"), (None, None), ""),
    ],
)
def test_the_text_of_cells(column, ends, values, text):
    columns = [column + end for end in (ends if len(ends) == 2 else ("", *ends))]
    table = Table("t", "T", pd.DataFrame([values], columns=columns, dtype=object))
    assert table.grids()[None].rows == [{column: text}]


def test_sections():
    grids = TABLE.grids(brief=True)
    assert [*grids] == [("m_1", "seen"), ("m_2", "heldout")]
    first, second = grids.values()
    assert first.title == "Title_1; m_1, protocol seen (incomplete)"
    assert first.rows == [{"name": NASTY, "dev": "80.12 ± 1.00"}]
    assert (second.title, second.notes) == ("Title_1; m_2", ())
    assert first.notes == ("a note",)


def test_empty_columns_can_be_left_out():
    cells = pd.DataFrame({"task": ["", ""], "dev": ["61.25", ""], "warnings": ["", ""]})
    assert [*Grid("t", cells).filled.cells] == ["task", "dev"]
    assert Grid("t", cells).kinds == {"task": "", "dev": "number", "warnings": ""}


def test_markdown():
    assert to_markdown(TABLE) == (
        "# Title\\_1\n\n"
        "## m\\_1, protocol seen (incomplete)\n\n"
        "| name | words | pairs | dev | difference interval |\n"
        "| --- | --- | --: | --: | --: |\n"
        "| =SUM(A1)\\|\\<b\\>\\_x\\_\\*\\[y\\](z)\\&\\#%\\$^\\~\\\\{}\\` | "
        f"{LONG} | 3 | 80.12 ± 1.00 | -1.00 to +2.00 |\n\n"
        "- a note\n\n"
        "## m\\_2\n\n"
        "| name | words | pairs | dev | difference interval |\n"
        "| --- | --- | --: | --: | --- |\n"
        "| -b |  | -4 | 1.00 |  |\n\n"
        "- for all\n"
    )


def test_csv():
    assert list(csv.reader(io.StringIO(to_csv(TABLE)))) == [
        list(DATA),
        ["m_1", "seen", f"'{NASTY}", LONG, "3", "80.123457", "1", "-1", "2", "0.03125"],
        ["m_2", "heldout", "'-b", "", "-4", "1", "", "", "", ""],
    ]


@pytest.mark.parametrize(
    "text", ["=1+1", "=a\r=1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\r=1"]
)
def test_csv_text_is_no_formula(text):
    data = pd.DataFrame({"model": [text], "protocol": ["seen"], "a": [text], "b": [-1.5]})
    table = Table("t", "T", data.astype(object))
    (_, row) = csv.reader(io.StringIO(to_csv(table), newline=""))
    quoted = f"'{text}".replace("\r", " ")
    assert row == [quoted, "seen", quoted, "-1.5"]


def test_latex():
    text = to_latex(TABLE)
    assert text.count(r"\begin{table*}") == text.count(r"\end{table*}") == 2
    caption = r"\caption{Title\_1; m\_1, protocol seen (incomplete). a note for all}"
    assert caption in text
    assert r"\begin{tabular}{lp{0.22\linewidth}rrr}" in text
    assert (
        r"=SUM(A1)\textbar{}\textless{}b\textgreater{}\_x\_{*}{[}y{]}(z)\&\#\%\$\textasciicircum{}"
        r"\textasciitilde{}\textbackslash{}\{\}` & "
    ) in text
    assert r"95 \% of it & 3 & 80.12 $\pm$ 1.00 & $-$1.00 to +2.00 \\" in text
    assert r"-b &  & $-$4 & 1.00 &  \\" in text
    bare = re.sub(r"\\[{}]", "", text)
    assert bare.count("{") == bare.count("}")


def test_an_empty_table_is_marked():
    assert to_markdown(EMPTY) == "# Title\n\nNothing here.\n"
    assert "% Nothing here." in to_latex(EMPTY)
    assert to_csv(EMPTY) == "name\n"


@pytest.mark.parametrize(
    ("cells", "is_wide"),
    [
        ({"run": ["a" * 19], "dev": ["b" * 20], "p": ["c"]}, False),
        ({"run": ["a" * 19], "dev": ["b" * 21], "p": ["c"]}, True),
        ({"run": ["a" * 19], "long words in a title do wrap here": ["b"], "p": ["c"]}, False),
        ({"run": ["a" * 19], "unbreakable" * 3: ["b"], "p": ["c"]}, True),
        ({"fact": ["a" * 19], "value": ["b" * 99]}, False),
    ],
)
def test_a_table_wider_than_a_phone(cells, is_wide):
    assert Grid("t", pd.DataFrame(cells)).is_wide == is_wide
