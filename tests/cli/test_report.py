from __future__ import annotations

import csv
import io
import json

import pytest

import auber
from auber.models.surgery import remove
from tests.report.html.made import write_ranked, write_searched
from tests.report.made import make_speed
from tests.report.results import make_result, write_plan, write_run, write_study
from tests.small import small_config, small_start, small_task

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


def test_files_do_not_depend_on_where_the_runs_lie(run_auber, tmp_path):
    found = []
    for place, scores in (("a", SCORES), ("b", dict(reversed(SCORES.items())))):
        write_study(tmp_path / place, scores)
        assert run_auber("report", tmp_path / place)[0] == 0
        report = tmp_path / place / "report"
        assert {path.name for path in report.iterdir()} == FILES
        found.append({name: (report / name).read_bytes() for name in TABLES})
    assert found[0] == found[1]
    rows = list(csv.DictReader(io.StringIO(found[0]["table2.csv"].decode())))
    assert [(row["task"], row["method"], row["dev"]) for row in rows] == [
        ("mrpc", "original", "80.5"),
        ("mrpc", "original+tuning", "81.5"),
        ("mrpc", "auber", "83.75"),
        ("rte", "original+tuning", "60.5"),
        ("rte", "auber", "62.75"),
    ]
    row = rows[2]
    assert (row["model"], row["protocol"], row["published dev"]) == ("mpnet-base", "seen", "86.03")
    assert row["difference"] == "2.25"


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
    assert "mpnet-base, seen: careful: rte, michel: one class predicted in 1 of 1 run\n" in out
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
    assert (section["coverage"], section["learned"]) == (None, [])
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
    assert out.startswith("auber: accuracy 61.7 (dev, 277 rows, ")
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
    assert out.splitlines()[-1] == "page: not written; choose a folder with --out DIR"


MISSING = "no such folder or results file; give what holds runs"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "a report needs runs, found nothing named; give folders or results files"),
        ("{} --save a.json --out b", "--out and --save exclude each other; give one"),
        (
            "{} --model-name m",
            "--model-name goes with --save FILE, found it without; add --save or leave it out",
        ),
        ("{} --note n", "--note goes with --save FILE, found it without; add --save or leave it "),
        ("{} --save a.json --open", "--open shows the HTML page, which --save does not write; le"),
        ("a.json --save b.json", f"a.json: {MISSING}"),
        ("{}/none", f"{{}}/none: {MISSING}"),
        ("{}/cut", "{}/cut: the run is not finished; continue it with --resume"),
        (
            "{}/auber {}/michel --open",
            "--open needs a page that is written, found no --out; add --out DIR",
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


def test_a_start_may_have_lost_all_heads_of_a_layer(run_auber, tmp_path):
    """A model pruned elsewhere; its run is shown by its folder and by its results file."""
    model, tokenizer = small_start()
    remove(model, {0: range(4), 1: [0, 1, 2]}, allow_empty_layers=True)
    run = tmp_path / "study" / "run"
    auber.prune(
        model,
        tokenizer,
        task=small_task(),
        method="greedy",
        config=small_config(reward__head=1.0),
        out=run,
    )
    code, out, err = run_auber("report", run)
    assert (code, err) == (0, "")
    assert "of 12 heads removed" in out
    assert run_auber("report", tmp_path / "study", "--save", tmp_path / "study.json")[0] == 0
    code, _, err = run_auber("report", tmp_path / "study.json", "--out", tmp_path / "page")
    assert (code, err) == (0, "")
    assert (tmp_path / "page" / "index.html").is_file()
