"""The site: every page is in it, and every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import auber
from tests.docs.blocks import GENERATED, ROOT, pages

LINKED = [*pages(), *(ROOT / "docs" / name for name in GENERATED), ROOT / "CHANGELOG.md"]


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return {
        re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())
        for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_links_work(page: Path):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        linked = page.parent / target if target else page
        assert linked.exists(), target
        if anchor and linked.suffix == ".md":
            assert anchor in anchors_of(linked), f"{target}#{anchor}"


def test_every_page_is_in_the_navigation_once():
    found = re.findall(r'"([\w-]+\.md)"', (ROOT / "zensical.toml").read_text())
    assert sorted(found) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


def test_the_reference_has_every_public_name():
    text = (ROOT / "docs" / "api.md").read_text()
    assert {*re.findall(r"^::: auber\.(\w+)$", text, flags=re.MULTILINE)} == set(auber.__all__)
