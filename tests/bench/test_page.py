"""The page of the kept results is made from them alone; AUBER_REGENERATE=1 writes it anew."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from auber.bench.page import NOTES, PLOT, render_page, write_page
from auber.errors import RunError
from tests.bench.records import make_bench, make_growth

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "performance.md"


@pytest.fixture
def files(tmp_path):
    benches = {
        "b.json": make_bench(),
        "a.json": make_bench(
            rewards=None, tuning=None, search=None, growth=make_growth(2.0), provenance={}
        ),
    }
    for name, bench in benches.items():
        (tmp_path / name).write_text(json.dumps(bench.to_json()))
    return [tmp_path / name for name in benches]


def test_the_page_shows_what_the_files_hold(files, tmp_path):
    text, plot = render_page(files, tmp_path / NOTES)
    for words in (
        "    auber bench --size base --rows rte",
        "| BERT base, random weights | rte-like | NVIDIA H200 | 1,040 | 104 | 15.2 | 68.2 | 66 % | 4.00 | 100 |",
        "| this scorer | 15.2 | 65.6 | 68.2 | 65.7 % |",
        "| 11 | 0.500 | 2,000 | 2080.0 | 208.0 | 0.0500 | 10.0 % | 0.100 (64) | 1.00 |",
        "| rewards | 60.0 | 60.0 % |",
        "| auber.training | 104 | 2.60 | 40.0 | 4.00 |",
        "commit `0123456789ab`; python 3.12.0, torch 2.11.0",
        "Result file `a.json`; no commit recorded",
        f"]({PLOT})",
    ):
        assert words in text
    assert text.index("`a.json`") < text.index("`b.json`")
    assert text.count("\n## ") == 3
    assert plot.startswith("<svg")
    assert (text, plot) == render_page(files[::-1], tmp_path / NOTES)


def test_notes_are_taken_over_and_a_plot_needs_growth(files, tmp_path):
    (tmp_path / NOTES).write_text("## What was tried\n\nThis.\n")
    (tmp_path / "a.json").unlink()
    files[0].write_text(json.dumps(make_bench(growth=None).to_json()))
    text, plot = render_page(files[:1], tmp_path / NOTES)
    assert text.endswith("\n\n## What was tried\n\nThis.\n")
    assert plot is None
    assert PLOT not in text


def test_a_page_that_cannot_be_written(files, tmp_path):
    with pytest.raises(RunError, match="page.md: cannot be written .*; choose another --page"):
        write_page(tmp_path / "none" / "page.md", files)


def test_the_kept_page_is_made_from_the_kept_results():
    kept = sorted((ROOT / "results" / "bench").glob("*.json"))
    if not kept:
        pytest.skip("no results are kept in results/bench")
    if os.environ.get("AUBER_REGENERATE") == "1":
        write_page(PAGE, kept)
    text, plot = render_page(kept, PAGE.parent / NOTES)
    assert PAGE.read_text(encoding="utf-8") == text
    if plot is not None:
        assert (PAGE.parent / PLOT).read_text(encoding="utf-8") == plot
