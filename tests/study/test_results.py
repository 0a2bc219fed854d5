"""The results file made from the folder of a real study."""

from __future__ import annotations

import json

from auber.report.results_file import save_results
from benchmarks.results_page import render_page


def test_the_file_is_small_and_names_no_place(unbroken, tmp_path):
    _, folder, _ = unbroken
    file = tmp_path / "study.json"
    saved = save_results(folder, file, model="small-bert")
    assert (saved.added, saved.present, saved.total, saved.left_out) == (10, 0, 10, ())
    text = file.read_text()
    assert str(folder.parent.parent) not in text
    assert len(text) < 10 * 2000
    content = json.loads(text)
    assert (
        {run["model"] for run in content["runs"]} == {content["study"]["model"]} == {"small-bert"}
    )
    assert {run["origin"]["command"] for run in content["runs"]} == {"auber study tiny.toml"}
    assert {key for run in content["runs"] for key in run["settings"]} == {"seed", "first.when"}
    assert render_page([file]).count("## small-bert, protocol seen\n") == 1
