"""The page of results is made from the kept files alone."""

from __future__ import annotations

import json

import pytest

from auber.errors import RunError
from auber.report.results_file import save_results
from benchmarks.results_page import render_page, write_page
from tests.report.made import make_regret, make_speed
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
    save_results(tmp_path / "two", tmp_path / "two.json", notes=["Shared *GPU*."])
    save_results(tmp_path / "three", tmp_path / "three.json")
    return [tmp_path / "two.json", tmp_path / "three.json"]


def test_the_page_shows_what_the_files_hold(files):
    text = render_page(files)
    for words in (
        "**Yes: auber has a significantly better dev score in every setting.**\n",
        "- Preliminary: runs are missing in 1 of them.\n",
        "|  | mpnet-base, protocol seen |\n",
        "| preset | paper |\n",
        "| heads removed | 14 % of 144 |\n",
        "| against original+tuning | **+2.0 (+1.5 to +2.5)**, 6 pairs |\n",
        "## mpnet-base, protocol seen (incomplete: 0 of 6 blocks so far)\n",
        "| auber | 85.90 ± 0.36, P 20, **+1.9** | 66.00 ± 1.00, P 20, +2.1 |\n",
        "| original+tuning | 84.00 ± 0.10 | 63.90 ± 0.36 |\n",
        "### Table 3: ablations\n",
        "| auber-l2 |  | 60.50 ± 0.71, P 20, -5.0 |\n",
        "| two.json | 19 | 0.1 | NVIDIA H200, bfloat16, 1 CPU thread | 0123456789ab |\n",
        "- two.json: Shared \\*GPU\\*.\n",
        "    auber study studies/table2.toml --out runs/table2\n",
    ):
        assert words in text
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## Should I prune heads to regularise my model?",
        "## mpnet-base, protocol seen (incomplete: 0 of 6 blocks so far)",
        "## How to read the tables",
        "## Where the numbers come from",
    ]
    assert text == render_page(files[::-1])


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
    assert "**No answer yet: no run of auber has a run of original+tuning" in text


def test_results_of_other_commands(tmp_path):
    for name, content in (("regret", make_regret()), ("speed", make_speed().to_json())):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    (tmp_path / "regret.svg").write_text("<svg/>")
    write_page(tmp_path / "page.md", [tmp_path / "speed.json", tmp_path / "regret.json"])
    text = (tmp_path / "page.md").read_text()
    assert [line for line in text.splitlines() if line.startswith("##")] == [
        "## What a search misses of a layer's best mask",
        "### Regret in points, 2 plays of each agent on each layer",
        "#### made-up, protocol seen",
        "## What removing heads buys in speed",
        "### Size and speedup on cpu (95 % interval)",
    ]
    assert "![Regret in points](regret.svg)" in text
    assert "Made by:\n\n    auber speed x\n" in text


def test_another_kind_is_named(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"kind": "run"}))
    with pytest.raises(RunError, match="^a.json: Unknown kind of results 'run'. Did you mean"):
        render_page([tmp_path / "a.json"])


def test_a_page_that_cannot_be_written(tmp_path):
    assert "No results are kept yet" in render_page([])
    with pytest.raises(RunError, match=r"p.md: cannot be written \(.*\); choose another place"):
        write_page(tmp_path / "none" / "p.md", [])
