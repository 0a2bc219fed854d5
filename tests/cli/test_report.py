from __future__ import annotations

import csv
import json

import pytest

import auber
from auber.models.surgery import remove_heads
from tests.report.html.made import write_ranked, write_searched
from tests.report.made import make_regret
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
NAMES = {
    f"{table}.{suffix}"
    for table in ("table1", "table2", "table3", "comparisons", "overfitting", "costs")
    for suffix in ("md", "csv", "tex")
}


def test_files_do_not_depend_on_where_the_runs_lie(run_auber, tmp_path):
    found = []
    for place in ("a", "b", "b"):
        scores = SCORES if place == "a" else dict(reversed(SCORES.items()))
        if not (tmp_path / place).exists():
            write_study(tmp_path / place, scores)
        assert run_auber("report", tmp_path / place)[0] == 0
        report = tmp_path / place / "report"
        assert {path.name for path in report.iterdir()} == {*NAMES, "index.html", "figures"}
        found.append({name: (report / name).read_bytes() for name in NAMES})
    assert found[0] == found[1] == found[2]


def test_the_second_table_as_data(run_auber, tmp_path):
    write_study(tmp_path, SCORES)
    run_auber("report", tmp_path)
    with (tmp_path / "report" / "table2.csv").open(newline="") as source:
        rows = list(csv.DictReader(source))
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


def test_the_command_shows_tables_and_verdicts(run_auber, tmp_path):
    write_study(tmp_path, SCORES)
    write_run(tmp_path, "cut", None)
    write_run(
        tmp_path, "one-class", make_result("rte", "michel", 0, 0.5271, **{"dev.one_class": True})
    )
    code, out, err = run_auber("report", tmp_path)
    assert (code, err) == (0, "")
    assert "Table 2: the methods; mpnet-base, protocol seen" in out
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
        f"{tmp_path / 'study'}: 12 added, 0 there already, 1 without a result\n  left out: "
        "cut (unfinished)\n" in out
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
        "mpnet, seen: incomplete: 2 of 4 blocks so far; missing:\n  rte, seed 0: auber-l2, "
        "original\n" in out
    )
    assert out.splitlines()[-2:] == [
        f"{what}: not written; choose a folder with --out DIR" for what in ("tables", "page")
    ]
    code, out, _ = run_auber("report", file, "--out", tmp_path / "tables")
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {
        *NAMES,
        "index.html",
        "figures",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "a report needs runs, found nothing named; give folders or results files"),
        (["{}", "--save", "a.json", "--out", "b"], "--out and --save exclude each other; give one"),
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
            "--open shows the HTML page, which --save does not write; leave it out",
        ),
        (
            ["a.json", "--save", "b.json"],
            "a.json: no such folder or results file; give what holds runs",
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
    assert section["gaps"][0]["method"] == "original"
    assert section["pooled"][0]["reference"] == "original+tuning"
    assert section["pooled"][0]["verdict"].startswith("ahead by 2.2 points, 95 % interval ")
    assert section["methods"][1]["verdict"] is None
    assert section["learned"] == []


def test_one_run(run_auber, tmp_path):
    run = write_searched(tmp_path)
    code, out, err = run_auber("report", run)
    assert (code, err) == (0, "")
    assert out.startswith("auber: Dev accuracy 61.73, 3 of 12 heads removed.\n  Train 95.00, ")
    assert out.splitlines()[-1].startswith(
        f"page: {run / 'report' / 'index.html'}, figures beside it as SVG"
    )
    assert {path.name for path in (run / "report").iterdir()} == {"index.html", "figures"}
    before = (run / "report" / "index.html").read_bytes()
    run_auber("report", run)
    assert (run / "report" / "index.html").read_bytes() == before


def test_runs_side_by_side_as_json(run_auber, tmp_path):
    places = [write_searched(tmp_path), write_ranked(tmp_path)]
    code, out, _ = run_auber("report", *places, "--out", tmp_path / "both", "--json")
    facts = json.loads(out)
    assert (code, facts["page"]) == (0, str(tmp_path / "both" / "index.html"))
    assert [verdict["about"] for verdict in facts["verdicts"]] == [
        "Side by side",
        "auber",
        "michel",
    ]
    assert str(tmp_path / "both" / "figures" / "scores.svg") in facts["figures"]
    _, out, _ = run_auber("report", *places)
    assert out.splitlines()[-1] == "page: not written; choose a folder with --out DIR"


def test_a_folder_has_tables_and_a_page(run_auber, tmp_path):
    write_study(tmp_path, {"rte": {"auber": [60.0, 61.0], "original+tuning": [60.0, 60.5]}})
    (tmp_path / "regret.json").write_text(json.dumps(make_regret()))
    code, out, _ = run_auber("report", tmp_path, tmp_path / "regret.json")
    assert code == 0
    assert out.splitlines()[-2] == f"tables: {tmp_path / 'report'}"
    assert (
        "P: heads removed; gap: train minus dev; scores in points, 100 times the metric."
        in out.splitlines()
    )
    overfitting = out[out.index("Overfitting, against original+tuning") :].splitlines()
    assert overfitting[1].split()[:3] == ["method", "pairs", "gap"], "against whom is in the title"
    assert any(line.startswith("  auber: ") for line in overfitting)
    assert (tmp_path / "report" / "table2.md").is_file()
    assert 'id="regret"' in (tmp_path / "report" / "index.html").read_text()
    assert (tmp_path / "report" / "figures" / "regret.svg").is_file()


def test_the_page_is_shown(run_auber, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    run = write_searched(tmp_path)
    code, _, _ = run_auber("report", run, "--open")
    assert (code, shown) == (0, [(run / "report" / "index.html").as_uri()])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{}/cut"], "{}/cut: the run is not finished; continue it with --resume"),
        (
            ["{}/auber", "{}/michel", "--open"],
            "--open needs a page that is written, found no --out; add --out DIR",
        ),
        (
            ["{}/regret.json"],
            "a report needs runs, found only results of other kinds; name the runs they "
            "belong to as well",
        ),
        (["{}/none"], "{}/none: no such folder or results file; give what holds runs"),
        (
            ["{}/rows.csv"],
            "{}/rows.csv: must be a folder or a results file (.json), found another file; "
            "name a run's --out",
        ),
        (
            ["{}/auber", "{}/other.json"],
            "other.json: must hold runs, found results of kind 'bench'; leave it out",
        ),
    ],
)
def test_a_mistake_is_one_line(run_auber, tmp_path, arguments, message):
    write_searched(tmp_path)
    write_ranked(tmp_path)
    write_run(tmp_path, "cut", None)
    (tmp_path / "regret.json").write_text(json.dumps(make_regret()))
    (tmp_path / "rows.csv").write_text("text,label\n")
    (tmp_path / "other.json").write_text(json.dumps({"kind": "bench"}))
    code, out, err = run_auber("report", *(word.format(tmp_path) for word in arguments))
    assert (code, out) == (2, "")
    assert err == f"auber: {message.format(tmp_path)}\n"


def test_a_start_may_have_lost_all_heads_of_a_layer(run_auber, tmp_path):
    """A model pruned elsewhere; its run is shown by its folder and by its results file."""
    model, tokenizer = small_start()
    remove_heads(model, {0: range(4), 1: [0, 1, 2]}, allow_empty_layers=True)
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
