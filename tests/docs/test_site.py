"""The site: every page is in it, every link leads somewhere, and nothing comes from the network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import auber
from tests.docs.blocks import GENERATED, ROOT, pages

pytestmark = pytest.mark.xdist_group("site")  # in one process: two would build into one folder

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


# What a browser fetches when it opens a page.
_FETCHED = {
    "script": "src",
    "img": "src",
    "source": "src",
    "iframe": "src",
    "link": "href",
    "video": "src",
}


class Page(HTMLParser):
    """The anchors of a built page, and what a browser would fetch for it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        address = values.get(_FETCHED.get(tag, ""))
        if address is not None and values.get("rel") not in ("canonical", "next", "prev"):
            self.fetched.append(address)


@pytest.fixture(scope="module")
def site() -> dict[Path, Page]:
    """The pages of the site that 'make docs' leaves, built here as strictly."""
    folder = ROOT / "site"
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {path: Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}


@pytest.mark.docs
def test_nothing_is_fetched_from_the_network(site: dict[Path, Page]):
    for path, page in site.items():
        assert [address for address in page.fetched if urlsplit(address).netloc] == [], path.name
    outside = r"url\(\s*['\"]?(?:https?:)?//[^)]*|@import[^;]*//[^;]*"
    for path in (ROOT / "site").rglob("*.css"):
        assert re.findall(outside, path.read_text()) == [], path.name


@pytest.mark.docs
def test_the_reference_is_made_from_docstrings(site: dict[Path, Page]):
    anchors = site[ROOT / "site" / "api.html"].anchors
    for name in auber.__all__:
        assert f"auber.{name}" in anchors, name
    # Also what it shares with other scorers.
    assert "auber.scoring.LayerScorer.score_many" in anchors
    text = (ROOT / "site" / "api.html").read_text()
    assert "Prune an encoder for a task and fine-tune what is left." in text
