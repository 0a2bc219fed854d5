"""The site: every page is in it, every link leads somewhere, and nothing comes from the network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import auber
from tests.docs.blocks import ROOT

pytestmark = pytest.mark.xdist_group("site")  # in one process: two would build into one folder

# What a browser fetches when it opens a page.
_FETCHED = {
    "script": "src",
    "img": "src",
    "source": "src",
    "iframe": "src",
    "link": "href",
    "video": "src",
}


def leaves(nav: list[dict[str, object]]) -> Iterator[str]:
    for entry in nav:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                assert isinstance(value, list)
                yield from leaves(value)


def test_every_page_is_in_the_navigation_once():
    config = tomllib.loads((ROOT / "zensical.toml").read_text())
    assert sorted(leaves(config["project"]["nav"])) == sorted(
        page.name for page in (ROOT / "docs").glob("*.md")
    )


def test_the_reference_has_every_public_name():
    documented = set(
        re.findall(
            r"^::: auber\.(\w+)$", (ROOT / "docs" / "api.md").read_text(), flags=re.MULTILINE
        )
    )
    assert documented == set(auber.__all__)


class Page(HTMLParser):
    """The anchors of a built page, what it links to and what a browser would fetch for it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if (
            tag in _FETCHED
            and _FETCHED[tag] in values
            and values.get("rel") not in ("canonical", "next", "prev")
        ):
            self.fetched.append(values[_FETCHED[tag]])


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
def test_links_and_anchors_of_the_built_site_lead_somewhere(site: dict[Path, Page]):
    for path, page in site.items():
        if (
            path.name == "404.html"
        ):  # shown at any address, so its links are those of the root of a server
            continue
        for link in [*page.links, *page.fetched]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.is_relative_to(ROOT / "site"), f"{path.name}: {link} leaves the site"
            assert target.exists(), f"{path.name}: {link}"
            if parts.fragment and target.suffix == ".html":
                assert unquote(parts.fragment) in site[target].anchors, f"{path.name}: {link}"


@pytest.mark.docs
def test_nothing_is_fetched_from_the_network(site: dict[Path, Page]):
    for path, page in site.items():
        assert [address for address in page.fetched if urlsplit(address).netloc] == [], path.name
    for path in (ROOT / "site").rglob("*.css"):
        assert (
            re.findall(r"url\(\s*['\"]?(?:https?:)?//[^)]*|@import[^;]*//[^;]*", path.read_text())
            == []
        ), path.name


@pytest.mark.docs
def test_the_reference_is_made_from_docstrings(site: dict[Path, Page]):
    anchors = site[ROOT / "site" / "api.html"].anchors
    for name in auber.__all__:
        assert f"auber.{name}" in anchors, name
    assert "auber.scoring.LayerScorer.score_many" in anchors, (
        "also what it shares with other scorers"
    )
    text = (ROOT / "site" / "api.html").read_text()
    assert "Prune the heads of an encoder for a task and fine-tune what is left." in text
