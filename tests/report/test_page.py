"""The page of results is made from the kept files alone."""

from __future__ import annotations

import json

import pytest

from auber.errors import RunError
from auber.report.page import SECTIONS, PageSection, render_page, write_page
from auber.report.results_file import save_results
from tests.report.results import make_result, write_plan, write_run, write_study

METHODS = ["auber", "random", "original", "original+tuning"]
SCORES = {
    "mrpc": {
        "auber": [86.0, 85.5, 86.2],
        "random": [80.0, 81.0, 82.0],
        "original+tuning": [84.0, 83.9, 84.1],
    },
    "rte": {
        "auber": [66.0, 65.0, 67.0],
        "original": [63.0, 64.0, 65.0],
        "original+tuning": [64.0, 63.5, 64.2],
    },
}


@pytest.fixture
def files(tmp_path):
    """Two files of one model: the methods, and an ablation from a folder of its own."""
    write_plan(tmp_path / "two", ["mrpc", "rte"], METHODS, [0, 1, 2])
    write_study(tmp_path / "two", SCORES)
    write_run(
        tmp_path / "two",
        "rte/seen/seed-0/start",
        make_result("rte", "original", 0, 0.6, kind="finetune"),
    )
    write_plan(tmp_path / "three", ["rte"], ["auber", "auber-l2"], [0, 1])
    write_study(tmp_path / "three", {"rte": {"auber-l2": [60.0, 61.0]}})
    for name in ("two", "three"):
        save_results(tmp_path / name, tmp_path / f"{name}.json")
    return [tmp_path / "two.json", tmp_path / "three.json"]


def test_the_page_shows_what_the_files_hold(files):
    text = render_page(files)
    for words in (
        "## Should I prune heads to regularise my model, and what will I get?\n",
        "### mpnet-base, protocol seen (incomplete: 0 of 6 blocks so far)\n",
        "**So far, and not the last word: yes. ",
        "### Table 2: the methods (incomplete: 0 of 6 blocks so far)\n",
        "### Table 3: auber and its ablations\n",
        "| mrpc | auber | 3 | 20.0 ± 0.0 | 85.90 ± 0.36 |",
        "| 20 | 86.03 |\n",  # published, beside it
        "### Overfitting, against original+tuning (incomplete: ",
        "- The rule. Shown is a difference of 3 pairs or more",
        "- Published: another model (bert-base-cased, here mpnet-base).\n",
        "### three.json\n",
        "| auber study studies/table2.toml --model mpnet-base --data GLUE --out t2 --only seed=0 | 0123456789ab |"
        " NVIDIA H200, bfloat16, 1 CPU thread | 7 | 88 |\n",
        "| rte | seen | 0 | 3 | 50 | 12 |\n",
        "    auber study studies/table2.toml --model bert-base-cased --out runs/table2\n",
    ):
        assert words in text
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        "## Should I prune heads to regularise my model, and what will I get?",
        "## The answer by model and protocol",
        "## mpnet-base, protocol seen (incomplete: 0 of 6 blocks so far)",
        "## Table 1: the tasks",
        "## How to read the tables",
        "## Where the numbers come from",
        "## How to repeat it",
    ]
    assert text.count("Shown is a difference of") == 1
    assert text == render_page(files[::-1])


def test_a_complete_study_is_not_called_incomplete(tmp_path):
    write_plan(tmp_path / "s", ["rte"], ["auber", "original+tuning"], [0, 1, 2])
    write_study(
        tmp_path / "s",
        {"rte": {method: SCORES["rte"][method] for method in ("auber", "original+tuning")}},
    )
    save_results(tmp_path / "s", tmp_path / "s.json")
    text = render_page([tmp_path / "s.json"])
    assert "incomplete" not in text
    assert "Missing" not in text
    assert "Every run that is not named as missing has a result." in text


def test_what_was_never_begun_and_what_failed_is_told(tmp_path):
    write_plan(tmp_path / "s", ["rte"], ["auber"], [0], protocols=["seen", "heldout"])
    write_study(tmp_path / "s", {"rte": {"auber": [60.0]}})
    (tmp_path / "s" / "x.failed.json").write_text(
        json.dumps({"error": "no room", "skipped": False})
    )
    save_results(tmp_path / "s", tmp_path / "s.json")
    text = render_page([tmp_path / "s.json"])
    assert (
        "## mpnet-base, protocol heldout (incomplete: 0 of 1 blocks so far)\n\nNo run yet.\n"
        in text
    )
    assert "1 run has no result and is in no number here: x (failed: no room)." in text
    assert "Every run that is not named as missing has a result." not in text


def test_a_section_is_a_line_in_the_table_and_left_out_without_a_file(files, tmp_path):
    def render_weather(found):
        return f"## Weather\n\n{', '.join(file.name for file in found)}: {found[0].content['seconds']} s\n"

    sections = (SECTIONS[0], PageSection("weather", render_weather), *SECTIONS[1:])
    assert "## Weather" not in render_page(files, sections)
    for name in ("b", "a"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"kind": "weather", "seconds": 3}))
    text = render_page([*files, tmp_path / "b.json", tmp_path / "a.json"], sections)
    assert "\n\n## Weather\n\na.json, b.json: 3 s\n\n## Where the numbers come from\n" in text
    alone = render_page([tmp_path / "a.json"], sections)
    assert alone.endswith("\n\n## Weather\n\na.json: 3 s\n")
    assert "No results are kept yet" not in alone


def test_a_kind_without_a_section_is_named(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"kind": "run"}))
    with pytest.raises(
        RunError, match="^a.json: Unknown kind of results 'run'. Did you mean 'runs'"
    ):
        render_page([tmp_path / "a.json"])


def test_no_files_make_a_page_without_an_answer():
    text = render_page([])
    assert "No results are kept yet" in text
    assert "## " not in text


def test_a_page_that_cannot_be_written(tmp_path):
    with pytest.raises(RunError, match=r"p.md: cannot be written \(.*\); choose another --page"):
        write_page(tmp_path / "none" / "p.md", [])
