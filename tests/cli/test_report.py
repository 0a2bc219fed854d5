from __future__ import annotations

import json

import pytest

from tests.report.made import make_speed
from tests.report.made_runs import write_ranked, write_searched
from tests.report.results import make_result, write_plan, write_run, write_study

SCORES = {
    "mrpc": {
        "original": [80.0, 81.0],
        "original+tuning": [81.0, 82.0],
        "auber": [83.0, 84.5],
        "auber-l2": [80.0, 84.0],
    },
    "rte": {"original+tuning": [60.0, 61.0], "auber": [62.5, 63.0]},
}
TABLES = {
    f"{table}.{suffix}"
    for table in ("table1", "table2", "table3", "comparisons", "overfitting", "costs")
    for suffix in ("md", "csv", "tex")
}
FILES = {*TABLES, "index.html", "figures"}


def test_the_command_prints_tables_and_verdicts(run_auber, tmp_path):
    write_study(tmp_path, SCORES)
    write_run(tmp_path, "cut", None)
    result = make_result("rte", "michel", 0, 0.5271, **{"dev.one_class": True})
    write_run(tmp_path, "one-class", result)
    (tmp_path / "speed.json").write_text(json.dumps(make_speed().to_json()))
    code, out, err = run_auber("report", tmp_path, tmp_path / "speed.json")
    assert (code, err) == (0, "")
    headline, *points = out.splitlines()
    assert headline.startswith("mpnet-base, protocol seen: Yes: removing what auber chose gives ")
    assert points[0].startswith("  Dev score of auber against original+tuning: ")
    assert "Table 2: the methods; mpnet-base, protocol seen" in out
    assert "4 (task, seed) pairs" in out
    assert "share one dev set" in out
    assert (
        "mpnet-base, protocol seen: warning: rte, michel: one class predicted in 1 of 1 run\n"
        in out
    )
    assert "runs: 13 finished, 1 without a result; fine-tuned starts: 0" in out
    assert "left out: cut (unfinished)" in out
    assert "\nP: heads removed; difference to original+tuning, in table 3 to auber; " in out
    assert out.splitlines()[-2] == f"tables: {tmp_path / 'report'}"
    assert 'id="speed"' in (tmp_path / "report" / "index.html").read_text()


def test_the_command_keeps_runs_and_reports_them_from_the_file(run_auber, tmp_path):
    study, file = tmp_path / "study", tmp_path / "kept" / "results.json"
    methods = ["auber", "auber-l2", "original", "original+tuning"]
    write_plan(study, ["mrpc", "rte"], methods, [0, 1])
    write_study(study, SCORES)
    write_run(study, "cut", None)
    save = ("report", study, "--save", file, "--model-name", "mpnet")
    code, out, err = run_auber(*save)
    assert (code, err) == (0, "")
    counts = "12 added, 0 there already, 1 without a result"
    assert f"{study}: {counts}\n  left out: cut (unfinished)\n" in out
    assert f"results: {file} (12 runs and starts, " in out
    code, out, _ = run_auber(*save, "--json")
    place = {"place": str(study), "added": 0, "present": 12, "left_out": 1}
    assert json.loads(out) == {"file": str(file), "runs": 12, "saved": [place]}

    code, out, _ = run_auber("report", file)
    assert code == 0
    label, words = "incomplete: 2 of 4 blocks so far", " ".join(out.split())
    assert words.startswith(f"mpnet, protocol seen ({label}): Preliminary: ")
    assert f"Table 2: the methods; mpnet, protocol seen ({label})" in words
    assert "Missing: rte, seed 0: auber-l2, original; rte, seed 1: auber-l2, original." in words
    assert out.splitlines()[-2:] == [
        f"{what}: not written; choose a folder with --out DIR" for what in ("tables", "page")
    ]
    run_auber("report", file, "--out", tmp_path / "tables")
    assert {path.name for path in (tmp_path / "tables").iterdir()} == FILES


def test_the_command_prints_json(run_auber, tmp_path):
    write_study(tmp_path, SCORES)
    code, out, _ = run_auber("report", tmp_path, "--json")
    summary = json.loads(out)
    assert (code, summary["runs"], summary["starts"], summary["left_out"]) == (0, 12, 0, [])
    (section,) = summary["sections"]
    assert (section["missing"], section["learned"]) == ([], [])
    assert section["gaps"][0]["method"] == "original"
    assert section["pooled"][0]["against"] == "original+tuning"
    assert section["pooled"][0]["verdict"].startswith("ahead by 2.2 points, 95 % interval ")
    assert section["methods"][1]["verdict"] is None


def test_one_run(run_auber, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    run = write_searched(tmp_path)
    page = run / "report" / "index.html"
    code, out, err = run_auber("report", run)
    assert (code, err, opened) == (0, "", [])
    assert out.startswith("auber: With 75 % of the heads, dev accuracy is 61.7.\n")
    assert out.splitlines()[-1].startswith(f"page: {page}, figures beside it as SVG")
    assert {path.name for path in page.parent.iterdir()} == {"index.html", "figures"}
    before = page.read_bytes()
    assert run_auber("report", run, "--open")[0] == 0
    assert (page.read_bytes(), opened) == (before, [page.as_uri()])


def test_runs_side_by_side_as_json(run_auber, tmp_path):
    places = [write_searched(tmp_path), write_ranked(tmp_path)]
    code, out, _ = run_auber("report", *places, "--out", tmp_path / "both", "--json")
    facts = json.loads(out)
    assert (code, facts["page"]) == (0, str(tmp_path / "both" / "index.html"))
    names = [verdict["about"] for verdict in facts["verdicts"]]
    assert names == ["Side by side", "auber", "michel"]
    assert str(tmp_path / "both" / "figures" / "heads.svg") in facts["figures"]
    _, out, _ = run_auber("report", *places)
    rows = [line.split() for line in out.splitlines()]
    assert ["model", "dev", "accuracy"] in rows
    assert ["auber", "61.7"] in rows
    assert ["michel", "64.0"] in rows
    assert out.splitlines()[-1] == "page: not written; choose a folder with --out DIR"


MISSING = "no such folder or results file; name what holds runs"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "a report needs runs, found none; give folders or results files"),
        ("{} --save a.json --out b", "--out and --save exclude each other; give one"),
        ("{} --model-name m", "--model-name needs --save FILE, found none; add --save"),
        ("{} --note n", "--note needs --save FILE, found none; add --save"),
        ("{} --save a.json --open", "--open and --save exclude each other; give one"),
        ("a.json --save b.json", f"a.json: {MISSING}"),
        ("{}/none", f"{{}}/none: {MISSING}"),
        ("{}/cut", "{}/cut: the run is not finished; continue it with --resume"),
        (
            "{}/auber {}/michel --open",
            "--open shows the page that --out writes, found no --out; add --out DIR",
        ),
        (
            "{}/speed.json",
            "a report needs runs, found only results of other kinds; name the runs they belong to "
            "as well",
        ),
        (
            "{}/rows.csv",
            "{}/rows.csv: must be a folder or a results file (.json), found another file; name a "
            "run's --out",
        ),
        (
            "{}/auber {}/other.json",
            "other.json: must hold runs, found results of kind 'bench'; leave it out",
        ),
    ],
)
def test_a_mistake_is_one_line(run_auber, tmp_path, arguments, message):
    write_searched(tmp_path)
    write_ranked(tmp_path)
    write_run(tmp_path, "cut", None)
    (tmp_path / "speed.json").write_text(json.dumps(make_speed().to_json()))
    (tmp_path / "rows.csv").write_text("text,label\n")
    (tmp_path / "other.json").write_text(json.dumps({"kind": "bench"}))
    words = [word.replace("{}", str(tmp_path)) for word in arguments.split()]
    code, out, err = run_auber("report", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"auber: {message.replace('{}', str(tmp_path))}")
