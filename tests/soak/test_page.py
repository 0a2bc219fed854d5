"""docs/reliability.md shows the kept figures; AUBER_REGENERATE=1 writes them anew."""

from __future__ import annotations

import os

import pytest

from tests.soak.nursery import ROOT
from tests.soak.page import BEGIN, END, read_record, render_page

PAGE = ROOT / "docs" / "reliability.md"
KEPT = ROOT / "results" / "soak.json"

MADE = {
    "command": "python -m tests.soak --out results/soak.json",
    "commit": {"id": "0123456789abcdef", "dirty": True},
}
PHASES = {"phases": {"saving": 4, "search": 46}}
RECORD = {
    "versions": {"python": "3.11.2", "torch": "2.13.0", "transformers": "5.22.2"},
    "device": "a CPU",
    "drills": {
        "csv": {
            "count": 1000,
            "seconds": 1.2,
            "peak_mb": 2000,
            "details": {"bytes_a_row": 116},
            **MADE,
        },
        "kills": {"count": 50, "seconds": 300.4, "peak_mb": 900, "details": PHASES, **MADE},
    },
}


def test_figures_take_the_place_of_figures():
    page = render_page(f"Text.\n\n{BEGIN}\nold\n{END}\n\nMore.\n", RECORD)
    assert page.startswith(f"Text.\n\n{BEGIN}\n")
    assert page.endswith(f"{END}\n\nMore.\n")
    assert "old" not in page
    rows = [line for line in page.splitlines() if line.startswith("| ")][1:]
    assert rows == [
        "| killed at random moments (SIGKILL), gone on | 50 | 300 | 900 | 4 in saving, 46 in search |",
        "| rows of a csv that is read | 1,000 | 1 | 2,000 | bytes a row 116 |",
    ]
    assert "On a CPU, python 3.11.2, torch 2.13.0, transformers 5.22.2, by:" in page
    assert (
        page.count(
            "\n- `python -m tests.soak --out results/soak.json`, commit `0123456789ab` with changes\n"
        )
        == 1
    )
    assert render_page(page, RECORD) == page


def test_the_page_shows_the_kept_figures():
    if not KEPT.exists():
        pytest.skip("no figures are kept in results/soak.json; 'make soak' makes them")
    record = read_record(KEPT)
    if os.environ.get("AUBER_REGENERATE") == "1":
        PAGE.write_text(render_page(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == render_page(PAGE.read_text(encoding="utf-8"), record)
