"""A page as one HTML file that needs nothing else: style and script are in it, and nothing but these two may run or load.

The content security policy names the style and the script by their hashes, so that markup which slipped through an escape
could neither run nor load anything. Every text is escaped by the templates; a figure's drawing alone is taken as it is.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources

import jinja2
from markupsafe import Markup

from auber.report.html.page import Page
from auber.report.html.palette import FIGURE_INKS, PAGE_INKS


def render_html(page: Page) -> str:
    """The whole file, the same bytes from the same page."""
    environment = _environment()
    inks = (*FIGURE_INKS, *PAGE_INKS)
    style_text, script_text = (
        environment.get_template("style.css").render(figure_inks=FIGURE_INKS, inks=inks),
        _text("script.js"),
    )
    style = Markup(style_text)  # nosec B704 # our own file with our own colours
    script = Markup(script_text)  # nosec B704 # our own file
    policy = (
        f"default-src 'none'; style-src 'sha256-{_digest(style)}'; script-src 'sha256-{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return environment.get_template("page.html").render(
        page=page, style=style, script=script, policy=policy, drawing=Markup
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.DictLoader(
            {name: _text(name) for name in ("page.html", "parts.html", "style.css")}
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _text(name: str) -> str:
    return (resources.files("auber.report.html") / "templates" / name).read_text(encoding="utf-8")
