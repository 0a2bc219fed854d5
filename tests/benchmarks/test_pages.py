"""The generated pages are those that the program writes."""

from __future__ import annotations

import shutil

import pytest

from benchmarks import pages
from benchmarks.common import ROOT


@pytest.fixture
def docs(tmp_path, monkeypatch):
    """A copy of the pages."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    monkeypatch.setattr(pages, "DOCS", tmp_path / "docs")
    return tmp_path / "docs"


@pytest.mark.parametrize(
    "name",
    ["fidelity", "paper", "performance", "regret", "reliability", "results", "settings"],
)
def test_the_pages_are_up_to_date(name, docs):
    (docs / f"{name}.md").write_text(
        (docs / f"{name}.md").read_text().replace("| --- |", "| --- | ---")
    )
    pages.main([name])
    for file in (f"{name}.md", *(path.name for path in docs.glob("*.svg"))):
        assert (docs / file).read_text() == (ROOT / "docs" / file).read_text()
