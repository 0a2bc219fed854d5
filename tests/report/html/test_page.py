from __future__ import annotations

from auber.report.columns import Column, Detail, Table, TableSection
from auber.report.html.page import (
    Figure,
    Figures,
    Page,
    Section,
    distinct,
    figures,
    grids,
    joined,
    section,
    slug,
)


def test_names_of_files_are_letters_digits_and_dashes():
    assert slug("Heads", "RTE/mpnet base") == "heads-rte-mpnet-base"
    assert slug("../../etc/passwd") == "etc-passwd"
    assert slug("<script>") == "script"
    assert slug("…") == "unnamed"
    assert len(slug("x" * 500)) == 60


def test_no_two_figures_or_anchors_share_a_name():
    figure = Figure("a", "A", "<svg/>")
    part = Section("s", "S", (Figures("", (figure, figure)), Figures("", (figure,))))
    page = distinct(Page("t", "", (), (part, part)))
    assert [found.name for found in page.figures] == ["a", "a-2", "a-3", "a-4", "a-5", "a-6"]
    assert [found.anchor for found in page.sections] == ["s", "s-2"]


def test_what_is_empty_is_not_there():
    assert section("a", "A", [None]) is None
    assert figures("c", [None]) is None
    assert joined([None, None]) is None
    figure = Figure("a", "A", "<svg/>")
    assert joined([Figures("One.", (figure,)), None, Figures("Two.", (figure,))]) == Figures(
        "One. Two.", (figure, figure)
    )


def test_a_table_has_the_columns_of_a_page():
    columns = (
        Column("task"),
        Column("dev", "number", 1),
        Column("p", "number", 4, detail=Detail.DATA),
    )
    part = TableSection("m", "seen", (("rte", 61.25, 0.5),), notes=("careful",))
    (grid,) = grids(
        Table("t", "Title", columns, (part, TableSection("n", "seen", ())), notes=("read so",))
    )
    assert grid.caption == "Title; m, protocol seen"
    assert [(column.title, column.is_text) for column in grid.columns] == [
        ("task", True),
        ("dev", False),
    ]
    assert (grid.rows, grid.notes) == ((("rte", "61.2"),), ("careful", "read so"))


def test_columns_that_say_nothing_of_any_row_are_left_out():
    columns = (Column("task"), Column("careful", "sentence"), Column("dev", "number", 2))
    part = TableSection("m", "seen", (("rte", None, 0.5), ("mrpc", None, None)))
    (grid,) = grids(Table("t", "Title", columns, (part,)))
    assert [heading.title for heading in grid.columns] == ["task", "dev"]
    assert [row[0] for row in grid.rows] == ["rte", "mrpc"]
