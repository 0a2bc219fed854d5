"""The page of the paper's tables is made from the kept files alone."""

from __future__ import annotations

import pytest

from auber.report.results_file import save_results
from benchmarks.paper_page import render_page
from tests.report.results import write_plan, write_study

BETTER, WORSE, SAME = (83.0, 84.1, 84.9), (77.0, 78.1, 78.9), (79.0, 82.0, 82.0)


@pytest.mark.parametrize(
    ("scores", "headline"),
    [
        ([BETTER, SAME], "It depends: auber has a significantly better dev score in some settings"),
        (
            [SAME, WORSE],
            "No: auber has a significantly better dev score in no setting, a worse one",
        ),
        (
            [SAME, SAME],
            "No: auber has a significantly better dev score in no setting. What you get",
        ),
    ],
)
def test_the_headline_counts_settings(tmp_path, scores, headline):
    files = []
    for number, dev in enumerate(scores):
        name = f"model-{number}"
        control = {"auber": list(dev), "original+tuning": [80.0, 81.0, 82.0]}
        write_study(tmp_path / name, {"mrpc": control}, model=name)
        save_results(tmp_path / name, tmp_path / f"{name}.json")
        files.append(tmp_path / f"{name}.json")
    assert f"\n**{headline}" in render_page(files)


def test_a_model_without_a_run_is_named(tmp_path):
    write_plan(tmp_path / "s", ["rte"], ["auber"], [0], protocols=["seen", "heldout"])
    write_study(tmp_path / "s", {"rte": {"auber": [60.0]}})
    save_results(tmp_path / "s", tmp_path / "s.json")
    text = render_page([tmp_path / "s.json"])
    title = "## mpnet-base, protocol heldout (incomplete: 0 of 1 blocks so far)"
    assert f"{title}\n\nNo run yet.\n" in text
    assert "**No answer yet: no pair of runs of auber and original+tuning" in text
