"""The page as a file: self-contained, inert whatever the names, accessible, the same bytes."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from html.parser import HTMLParser

import pytest

from auber.errors import RunError
from auber.report.page import make_page, render_page, write_page
from tests.report.made_runs import HOSTILE, write_ranked, write_searched, write_sized


class Elements(HTMLParser):
    """Every element with its attributes, and the text of style and script."""

    def __init__(self, text):
        super().__init__()
        self.found, self.texts, self.inside = [], {}, None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self.inside = tag

    def handle_data(self, data):
        if self.inside in ("style", "script"):
            self.texts[self.inside] = self.texts.get(self.inside, "") + data

    def handle_endtag(self, tag):
        self.inside = None

    def of(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return render_page(make_page([write_searched(folder), write_ranked(folder)]))


def test_nothing_comes_from_elsewhere(text):
    html = Elements(text)
    for tag, attributes in html.found:
        assert attributes.get("src", "data:").startswith("data:"), tag
        assert "style" not in attributes, "the policy would not let it count"
        assert not any(name.startswith("on") for name in attributes), tag
        if "href" in attributes:
            link = r"#[a-z0-9-]+|figures/[a-z0-9-]+\.(svg|pdf)"
            assert re.fullmatch(link, attributes["href"])
    tags = {tag for tag, _ in html.found}
    assert {"link", "iframe", "object", "form", "base", "svg"}.isdisjoint(tags)
    assert "url(" not in html.texts["style"]


def test_the_policy_names_style_and_script_by_their_hashes(text):
    html = Elements(text)
    (policy,) = [
        meta["content"]
        for meta in html.of("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'; img-src data:; ")
    for kind in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(html.texts[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
        assert len(html.of(kind)) == 1


def test_figures_and_tables_have_words(text):
    html = Elements(text)
    assert all(image["alt"] for image in html.of("img"))
    maps = [table for table in html.of("table") if table.get("class") == "heads"]
    assert all(table["aria-label"] for table in maps)
    assert len(html.of("table")) - len(maps) == len(html.of("caption")) > 0
    assert html.of("html") == [{"lang": "en"}]
    ids = [attributes["id"] for _, attributes in html.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in html.found:
        if attributes.get("href", "").startswith("#"):
            assert attributes["href"][1:] in ids


def test_a_head_shows_all_that_is_known_of_it(text):
    titles = [cell["title"] for cell in Elements(text).of("td") if "title" in cell]
    (first, *_) = [title for title in titles if title.startswith("layer 0, head 1: removed; ")]
    pattern = (
        r"layer 0, head 1: removed; state 0\.\d+; value of removing it first [+-]\d\.\d+ points; "
    )
    assert re.fullmatch(f"{pattern}not in the best mask scored", first)
    assert any(title.startswith("layer 2, stopping at once: value ") for title in titles)
    assert "layer 2, head 3: kept; importance 0.5" in titles


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text(tmp_path, text, name):
    changes = {"task": name, "model": name, "method": name, "config": {"seed": 0, name: name}}
    changes |= {"provenance.device": name, "metric": name, "data": name, "start": name}
    changes["command"] = shlex.join(["auber", "prune", "--model", name])
    run = write_searched(tmp_path, "run", **changes)
    other = write_ranked(tmp_path, "other", task=name, metric=name, data=name)
    sized = write_sized(tmp_path, "sized", seed=1, **changes)
    known = {tag for tag, _ in Elements(text).found} | {"details", "summary"}
    for places in ([run], [run, other, sized], [sized], [tmp_path]):
        page = render_page(make_page(places))
        html = Elements(page)
        assert {tag for tag, _ in html.found} <= known
        assert len(html.of("script")) == len(html.of("style")) == 1
        assert not any(key.startswith("on") for _, found in html.found for key in found)
        assert "1337" not in page, "no template is made of a name"


def test_the_same_runs_give_the_same_bytes(tmp_path):
    found = []
    for place in ("a", "b"):
        paths = write_page(make_page([write_searched(tmp_path / place)]), tmp_path / place / "out")
        found.append({path.name: path.read_bytes() for path in paths})
    assert found[0] == found[1]
    names = ("heads", "search")
    assert list(found[0]) == [
        "index.html",
        *(f"{n}.{kind}" for n in names for kind in ("svg", "pdf")),
    ]


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    page = make_page([write_searched(tmp_path)])
    with pytest.raises(RunError, match=r"file: cannot be written \(.*\); it must be a folder"):
        write_page(page, tmp_path / "file")
