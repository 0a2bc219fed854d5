from __future__ import annotations

import json

from auber.report.page import make_page
from auber.report.results_file import save_results
from tests.report.results import write_plan, write_study
from tests.report.test_run_page import names, titles

SCORES = {
    "rte": {
        "auber": [66.0, 65.0, 67.0],
        "random": [60.0, 61.0, 62.0],
        "original+tuning": [64.0, 63.5, 64.2],
    },
    "mrpc": {"auber": [86.0, 85.5], "original+tuning": [84.0, 83.9]},
}


def test_a_study(tmp_path):
    write_plan(tmp_path, ["mrpc", "rte"], ["auber", "random", "original+tuning"], [0, 1, 2])
    write_study(tmp_path, SCORES)
    failure = {"error": "no room", "skipped": False}
    (tmp_path / "x.failed.json").write_text(json.dumps(failure))
    page = make_page([tmp_path])
    (verdict,) = page.verdicts
    assert verdict.about == "mpnet-base, protocol seen"
    assert verdict.label == "incomplete: 3 of 6 blocks so far"
    assert verdict.headline.startswith("Preliminary: yes: ")
    assert titles(page) == [
        "Scores",
        "Comparisons",
        "Heads and neurons",
        "Training and costs",
        "Tasks",
        "How to read the tables",
        "Every run",
        "Configuration",
        "Provenance",
    ]
    assert names(page) == ["sizes", "scores", "heads"]
    auber, random = page.parts[0].maps["rte"]
    assert (auber.title, random.title) == ("auber, 3 runs", "random, 3 runs")
    assert auber.texts[5][9] == "layer 5, head 9: removed in 3 of 3"
    assert auber.shades[5][9:11] == [-10, 0]
    runs, left_out = page.grids["runs"]
    assert len(runs.rows) == 13
    assert {row["seed"] for row in runs.rows} == {"0", "1", "2"}
    assert left_out.rows == [{"run": "x", "reason": "failed: no room"}]
    assert sum("pairs is significant if" in sentence for sentence in page.legends) == 1
    assert len(set(page.legends)) == len(page.legends)


def test_notes_of_a_results_file_are_shown(tmp_path):
    write_study(tmp_path / "s", {"rte": {"auber": [60.0]}})
    save_results(tmp_path / "s", tmp_path / "s.json", notes=["Shared GPU."])
    page = make_page([tmp_path / "s.json"])
    assert page.notes == ("Shared GPU.",)
