"""Text of a run's files stays text in the report: no markup in a page. Tables: tests/report."""

from __future__ import annotations

import pytest

from auber.report.html.page import render_page
from auber.report.html.run_page import make_run_page
from auber.report.layers import read_runs
from tests.report.results import make_result, write_run

MARKUP = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><b>x",
    "{{ 7 * 7 }}",
    "javascript:alert(1)",
]


@pytest.mark.parametrize("text", MARKUP)
def test_a_page_shows_markup_as_text(tmp_path, text):
    command = f"auber prune --model {text!r}"
    result = make_result("rte", "auber", 0, 0.6, model=text, command=command, data=text, start=text)
    result["provenance"]["device"] = text
    result["config"]["agent.choose"] = text
    page = render_page(make_run_page(read_runs([write_run(tmp_path, "run", result)])))
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert "</style><b>" not in page
    assert 'href="javascript:' not in page
    assert "{{ 7 * 7 }}" in page or text != "{{ 7 * 7 }}"  # shown, not computed
