"""The file: self-contained, inert whatever the names, with names and captions for who cannot see it."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from auber.report.html import make_page
from auber.report.html.render import render_html
from tests.report.html.made import HOSTILE, write_ranked, write_searched
from tests.report.results import write_study


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
        self.inside = None if self.inside not in ("style", "script") else self.inside

    def handle_endtag(self, tag):
        self.inside = None

    def of(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


@pytest.fixture
def page(tmp_path):
    return make_page([write_searched(tmp_path), write_ranked(tmp_path)])


def test_nothing_comes_from_elsewhere(page):
    html = Elements(render_html(page))
    for tag, attributes in html.found:
        assert "src" not in attributes, tag
        assert "style" not in attributes, "the policy would not let it count"
        assert not any(name.startswith("on") for name in attributes), tag
        if "href" in attributes:
            assert re.fullmatch(r"#[a-z0-9-]+|figures/[a-z0-9-]+\.svg", attributes["href"])
    assert {"link", "img", "iframe", "object", "form", "base"}.isdisjoint(
        tag for tag, _ in html.found
    )
    assert "url(" not in html.texts["style"]


def test_the_policy_names_style_and_script_by_their_hashes(page):
    html = Elements(render_html(page))
    (policy,) = [
        meta["content"]
        for meta in html.of("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'; ")
    for kind in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(html.texts[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
        assert len(html.of(kind)) == 1


def test_figures_and_tables_have_words(page):
    text = render_html(page)
    html = Elements(text)
    drawings = html.of("svg")
    assert len(drawings) == len(list(page.figures)) == len(html.of("figcaption"))
    assert all(drawing["role"] == "img" and drawing["aria-label"] for drawing in drawings)
    assert len(html.of("table")) == len(html.of("caption")) > 0
    assert all(cell["scope"] in ("col", "row") for cell in html.of("th"))
    assert html.of("html") == [{"lang": "en"}]
    ids = [attributes["id"] for _, attributes in html.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in html.found:
        if attributes.get("href", "").startswith("#"):
            assert attributes["href"][1:] in ids


def test_the_same_runs_make_the_same_bytes(tmp_path):
    texts = [render_html(make_page([write_searched(tmp_path / place)])) for place in ("a", "b")]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text(tmp_path, name):
    changes = {"task": name, "model": name, "method": name, "config": {"seed": 0, name: name}}
    changes |= {"provenance.device": name, "metric": name, "data": name, "start": name}
    run = write_searched(tmp_path, "run", **changes)
    plain = {
        tag
        for tag, _ in Elements(
            render_html(make_page([write_searched(tmp_path.with_name(f"{tmp_path.name}-plain"))]))
        ).found
    }
    for places in (
        [run],
        [run, write_ranked(tmp_path, "other", task=name, metric=name, data=name)],
        [tmp_path],
    ):
        text = render_html(make_page(places))
        html = Elements(text)
        assert {tag for tag, _ in html.found} <= {*plain, "circle", "details", "summary"}
        assert len(html.of("script")) == len(html.of("style")) == 1
        assert not any(
            attribute.startswith("on") for _, attributes in html.found for attribute in attributes
        )
        assert "1337" not in text, "no template is made of what a name says"


def test_a_large_study_stays_small(tmp_path):
    """Four tasks, ten methods, five seeds of a base model: some hundred kilobytes, whatever the number of seeds."""
    methods = [
        "auber",
        "random",
        "confidence",
        "michel",
        "voita",
        "original",
        "original+tuning",
        "auber-l2",
        "auber-key",
    ]
    scores = {
        task: {method: [60.0, 61.0] for method in methods}
        for task in ("mrpc", "rte", "wnli", "agreement")
    }
    write_study(tmp_path, scores)
    assert len(render_html(make_page([tmp_path])).encode()) < 1.5e6
