"""The generated pages are those that the program writes."""

from __future__ import annotations

import shutil

import pytest

from benchmarks import pages
from benchmarks.common import ROOT, describe_origin, interval


@pytest.fixture
def docs(tmp_path, monkeypatch):
    """A copy of the pages."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    monkeypatch.setattr(pages, "DOCS", tmp_path / "docs")
    return tmp_path / "docs"


@pytest.mark.parametrize("name", ["performance", "reliability", "results", "settings"])
def test_the_pages_are_up_to_date(name, docs):
    (docs / f"{name}.md").write_text(
        (docs / f"{name}.md").read_text().replace("| --- |", "| --- | ---")
    )
    pages.main([name])
    for file in (f"{name}.md", "growth.svg"):
        assert (docs / file).read_text() == (ROOT / "docs" / file).read_text()


def test_the_page_of_encoders_is_written_by_its_tests(monkeypatch):
    commands = []
    monkeypatch.setattr(pages.subprocess, "run", lambda words, **rest: commands.append(words))
    pages.main(["encoders"])
    ((*_, path, _, word),) = commands
    assert (ROOT / path).is_file()
    assert f"{word}" in (ROOT / path).read_text()


def test_only_the_part_between_the_marks_is_replaced(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"Text.\n\n{pages.BEGIN}\nold\n{pages.END}\n\nMore.\n")
    found = pages.replace_part(page, "new\n")
    assert found == f"Text.\n\n{pages.BEGIN}\n\nnew\n\n{pages.END}\n\nMore.\n"
    page.write_text(found)
    assert pages.replace_part(page, "new\n") == found


def test_words_on_numbers():
    assert interval([1.0, 2.0, 3.0]) == "+2.00 (-0.48 to +4.48)"
    assert interval([1.0]) == "+1.00"
    commit = {"id": "0123456789abcdef", "dirty": True}
    found = describe_origin({"commit": commit, "versions": {"torch": "2.13.0", "numpy": "2"}})
    assert found == "commit `0123456789ab` with changes; torch 2.13.0"
