"""The command and the files it leaves."""

from __future__ import annotations

import csv
import json

import pytest

from auber.errors import RunError
from auber.report import write_report
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
NAMES = {
    f"{table}.{suffix}"
    for table in ("table1", "table2", "table3", "comparisons", "overfitting", "costs")
    for suffix in ("md", "csv", "tex")
}


def test_files_are_the_same_byte_for_byte(tmp_path):
    write_study(tmp_path, SCORES)
    written = write_report(tmp_path)
    first = {path.name: path.read_bytes() for path in written.files}
    assert set(first) == NAMES == {path.name for path in (tmp_path / "report").iterdir()}
    write_report(tmp_path)
    assert {path.name: path.read_bytes() for path in (tmp_path / "report").iterdir()} == first


def test_files_do_not_depend_on_where_the_runs_lie(tmp_path):
    for place in ("a", "b"):
        write_study(tmp_path / place, SCORES if place == "a" else dict(reversed(SCORES.items())))
        write_report(tmp_path / place)
    for name in NAMES:
        assert (tmp_path / "a" / "report" / name).read_bytes() == (
            tmp_path / "b" / "report" / name
        ).read_bytes()


def test_the_second_table_as_data(tmp_path):
    write_study(tmp_path, SCORES)
    write_report(tmp_path)
    with (tmp_path / "report" / "table2.csv").open(newline="") as source:
        rows = list(csv.DictReader(source))
    assert [(row["task"], row["method"], row["dev"]) for row in rows] == [
        ("mrpc", "original", "80.5"),
        ("mrpc", "original+tuning", "81.5"),
        ("mrpc", "auber", "83.75"),
        ("rte", "original+tuning", "60.5"),
        ("rte", "auber", "62.75"),
    ]
    assert (rows[2]["model"], rows[2]["protocol"], rows[2]["published dev"]) == (
        "mpnet-base",
        "seen",
        "86.03",
    )
    assert rows[2]["difference"] == "2.25"


def test_the_command_shows_tables_and_verdicts(run_auber, tmp_path):
    write_study(tmp_path, SCORES)
    write_run(tmp_path, "cut", None)
    write_run(
        tmp_path, "one-class", make_result("rte", "michel", 0, 0.5271, **{"dev.one_class": True})
    )
    code, out, err = run_auber("report", tmp_path)
    assert (code, err) == (0, "")
    assert "Table 2: the methods; mpnet-base, protocol seen" in out
    assert "no significant difference" in out
    assert "4 (task, seed) pairs" in out
    assert "share one dev set" in out
    assert "mpnet-base, seen: careful: rte, michel: one class predicted in 1 of 1 run\n" in out
    assert "runs: 13 finished, 1 without a result; fine-tuned starts: 0" in out
    assert "left out: cut (unfinished)" in out
    assert out.splitlines()[-2] == f"tables: {tmp_path / 'report'}"


def test_the_command_keeps_runs_and_reports_them_from_the_file(run_auber, tmp_path):
    write_plan(
        tmp_path / "study",
        ["mrpc", "rte"],
        ["auber", "auber-l2", "original", "original+tuning"],
        [0, 1],
    )
    write_study(tmp_path / "study", SCORES)
    write_run(tmp_path / "study", "cut", None)
    file = tmp_path / "kept" / "results.json"
    code, out, err = run_auber(
        "report", tmp_path / "study", "--save", file, "--model-name", "mpnet"
    )
    assert (code, err) == (0, "")
    assert (
        f"{tmp_path / 'study'}: 12 added, 0 there already, 1 without a result\n  left out: cut (unfinished)\n"
        in out
    )
    assert f"results: {file} (12 runs and starts, " in out
    code, out, _ = run_auber(
        "report", tmp_path / "study", "--save", file, "--model-name", "mpnet", "--json"
    )
    place = {"place": str(tmp_path / "study"), "added": 0, "present": 12, "left_out": 1}
    assert json.loads(out) == {"file": str(file), "runs": 12, "saved": [place]}

    code, out, _ = run_auber("report", file)
    assert code == 0
    assert (
        "Table 2: the methods; mpnet, protocol seen (incomplete: 2 of 4 blocks so far)"
        in " ".join(out.split())
    )
    assert (
        "mpnet, seen: incomplete: 2 of 4 blocks so far; missing:\n  rte, seed 0: auber-l2, original\n"
        in out
    )
    assert out.splitlines()[-2:] == [
        f"{what}: not written; --out DIR says where to" for what in ("tables", "page")
    ]
    code, out, _ = run_auber("report", file, "--out", tmp_path / "tables")
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {
        *NAMES,
        "index.html",
        "figures",
    }

    code, out, _ = run_auber("report", file, "--page", tmp_path / "page.md")
    assert (code, out) == (0, f"page: {tmp_path / 'page.md'}\n")
    assert (tmp_path / "page.md").read_text().startswith("# Results\n")
    _, out, _ = run_auber("report", "--page", tmp_path / "page.md", "--json")
    assert json.loads(out) == {"page": str(tmp_path / "page.md"), "files": []}
    assert "No results are kept yet" in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "a report needs runs, found nothing named; give folders or results files"),
        (
            ["{}", "--save", "a.json", "--page", "b.md"],
            "--save and --page exclude each other; give one",
        ),
        (["{}", "--out", "a", "--page", "b.md"], "--out and --page exclude each other; give one"),
        (
            ["{}", "--model-name", "m"],
            "--model-name goes with --save FILE, found it without; add --save or leave it out",
        ),
        (
            ["{}", "--note", "n"],
            "--note goes with --save FILE, found it without; add --save or leave it out",
        ),
        (
            ["{}", "--save", "a.json", "--open"],
            "--open shows the HTML page, which --save and --page do not write",
        ),
        (
            ["a.json", "--save", "b.json"],
            "a.json: no such folder or results file; give what holds runs",
        ),
        (
            ["{}", "--page", "b.md"],
            "--page takes results files, found the folder {}; make one with 'auber report {} --save",
        ),
    ],
)
def test_what_does_not_go_together_is_one_line(run_auber, tmp_path, arguments, message):
    code, out, err = run_auber("report", *(word.format(tmp_path) for word in arguments))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"auber: {message.format(tmp_path, tmp_path)}")


def test_the_command_prints_json(run_auber, tmp_path):
    write_study(tmp_path, SCORES)
    code, out, _ = run_auber("report", tmp_path, "--json")
    summary = json.loads(out)
    assert (code, summary["runs"], summary["starts"], summary["left_out"]) == (0, 12, 0, [])
    (section,) = summary["sections"]
    assert section["coverage"] is None
    assert section["gaps"][0]["verdict"].startswith("no significant difference")
    assert section["pooled"][0]["reference"] == "original+tuning"
    assert section["pooled"][0]["verdict"].startswith("ahead by 2.2 points, 95 % interval ")
    assert section["methods"][1]["verdict"] is None
    assert section["learned"] == []


def test_a_mistake_is_one_line(run_auber, tmp_path):
    code, out, err = run_auber("report", tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith(f"auber: {tmp_path}: no finished run below it")
    assert err.count("\n") == 1


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    write_study(tmp_path, SCORES)
    (tmp_path / "report").write_text("mine")
    with pytest.raises(
        RunError, match=r"report: cannot be written \(.*\); it must be a folder of its own"
    ):
        write_report(tmp_path)
    assert (tmp_path / "report").read_text() == "mine"
