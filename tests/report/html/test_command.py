from __future__ import annotations

import json

import pytest

import auber
from auber.models.surgery import remove_heads
from tests.report.html.made import write_ranked, write_searched
from tests.report.made import make_regret
from tests.report.results import write_run, write_study
from tests.small import small_config, small_start, small_task


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
    assert out.splitlines()[-1] == "page: not written; --out DIR says where to"


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
    assert any(line.startswith("  auber: no significant difference (") for line in overfitting)
    assert (tmp_path / "report" / "table2.md").is_file()
    assert 'id="regret"' in (tmp_path / "report" / "index.html").read_text()
    assert (tmp_path / "report" / "figures" / "regret.svg").is_file()


def test_without_the_pdf_packages_one_line_says_so(run_auber, tmp_path, monkeypatch):
    import auber.report.html

    monkeypatch.setattr(auber.report.html, "can_make_pdf", lambda: False)
    run = write_searched(tmp_path)
    _, out, _ = run_auber("report", run)
    assert out.splitlines()[-1].endswith(
        "figures beside it as SVG (PDF too with the extra 'report': pip install 'auber[report]')"
    )
    assert not list(run.rglob("*.pdf"))


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
            "a report needs runs, found only results of other kinds; name the runs they belong to as well",
        ),
        (["{}/none"], "{}/none: no such folder or results file; give what holds runs"),
        (
            ["{}/rows.csv"],
            "{}/rows.csv: must be a folder or a results file (.json), found another file; name a run's --out",
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
    """Models pruned elsewhere have such layers; a run of one is shown by its folder and by its results file."""
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
