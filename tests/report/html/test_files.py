from __future__ import annotations

import importlib.util

import pytest

from auber.errors import RunError
from auber.report.html import can_make_pdf, files, make_page, write_page
from auber.report.html.files import to_pdf
from tests.report.html.made import HOSTILE, write_searched

needs_pdf = pytest.mark.skipif(
    not can_make_pdf(), reason="the extra 'report' (svglib, reportlab) is not installed"
)


@pytest.fixture
def page(tmp_path):
    return make_page([write_searched(tmp_path)])


def test_the_page_and_its_drawings(page, tmp_path):
    written = write_page(page, tmp_path / "out", pdf=False)
    assert written[0] == tmp_path / "out" / "index.html"
    assert {path.name for path in (tmp_path / "out" / "figures").iterdir()} == {
        f"{figure.name}.svg" for figure in page.figures
    }
    assert all(path.is_file() for path in written)


@needs_pdf
def test_each_drawing_as_pdf_the_same_bytes_each_time(page, tmp_path):
    for place in ("a", "b"):
        write_page(page, tmp_path / place, pdf=True)
    names = sorted(path.name for path in (tmp_path / "a" / "figures").glob("*.pdf"))
    assert names == sorted(f"{figure.name}.pdf" for figure in page.figures)
    for name in names:
        content = (tmp_path / "a" / "figures" / name).read_bytes()
        assert content.startswith(b"%PDF-")
        assert content == (tmp_path / "b" / "figures" / name).read_bytes()


@needs_pdf
@pytest.mark.parametrize("name", [*HOSTILE, "日本語"])
def test_a_drawing_with_any_name_becomes_pdf(name):
    from auber.report.html.bars import draw_times

    assert to_pdf(draw_times([(name, {"rewards": 1.0})], label=name)).startswith(b"%PDF-")


def test_without_the_packages_there_is_no_pdf(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        files.importlib.util, "find_spec", lambda name: None if name == "svglib" else find(name)
    )
    assert not can_make_pdf()


def test_a_place_that_cannot_be_written(page, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(
        RunError, match=r"file: cannot be written \(.*\); it must be a folder of its own"
    ):
        write_page(page, tmp_path / "file", pdf=False)
