from __future__ import annotations

import json

import pytest

from auber.regret.figure import draw_regret
from auber.regret.tables import read_tables, write_tables
from tests.regret.made import make_run
from tests.regret.test_result import QUICK

SET = [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture
def tables(tmp_path):
    write_tables(tmp_path / "tables.json", [make_run("rte", (1, 2)), make_run("mrpc", (4,))])
    return tmp_path / "tables.json"


def test_help_teaches(run_auber):
    code, out, _ = run_auber("regret", "--help")
    assert code == 0
    assert "auber regret runs/all-rte --out results/regret/regret.json" in " ".join(out.split())
    assert "search.layers=2,6,10" in out


def test_a_replay_leaves_a_result_and_its_figure(run_auber, tables, tmp_path):
    out = tmp_path / "new" / "regret.json"
    code, printed, told = run_auber(
        "regret", tables, "--presets", "paper, default", "--seeds", 2, *SET, "--out", out
    )
    assert code == 0
    result = json.loads(out.read_text())
    assert (result["seeds"], list(result["presets"])) == (2, ["paper", "default"])
    assert result["command"].startswith("auber regret tables.json --presets ")
    assert out.with_suffix(".svg").read_text() == draw_regret(result)
    assert "mrpc, made-up, protocol seen: regret in points of accuracy" in printed
    assert "mean over 2 layers, with half its 95 % t interval over them" in printed
    rows = [line.split() for line in printed.splitlines()]
    layer = result["panels"][1]["layers"][0]
    expected = [
        f"{layer['searches']['greedy'][key]['mean']:.2f}" for key in ("50", "100", "200", "300")
    ]
    assert any(row[:6] == ["1", "greedy", *expected] for row in rows)
    assert "rte, layer 2: " in told
    assert str(out.with_suffix(".svg")) in printed


def test_json_alone_is_printed(run_auber, tables):
    code, printed, told = run_auber(
        "regret", tables, "--presets", "paper", "--seeds", 1, *SET, "--json", "--quiet"
    )
    assert (code, told) == (0, "")
    assert [panel["task"] for panel in json.loads(printed)["panels"]] == ["mrpc", "rte"]


def test_tables_are_joined(run_auber, tables, tmp_path):
    write_tables(tmp_path / "more.json", [make_run("cola", (0,))])
    out = tmp_path / "all.json"
    code, printed, _ = run_auber("regret", tables, tmp_path / "more.json", "--tables", out)
    assert (code, printed) == (0, f"tables: {out} (layers: 4, runs: 3)\n")
    assert [run.task for run in read_tables([out])] == ["rte", "mrpc", "cola"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--tables", "x.json", "--json"],
            "--tables replays nothing, so --json has nothing to show; give one",
        ),
        (
            ["--tables", "x.json", "--out", "y.json"],
            "--tables replays nothing, so --out has nothing to show; give one",
        ),
        (["--out", "x.svg"], "--out must be a file that ends in .json, found x.svg"),
        (
            ["--out", "/dev/null/x/y.json"],
            "/dev/null/x/y.json: its folder cannot be made (Not a directory); choose another --out",
        ),
        (["--presets", "papr"], "Unknown preset 'papr'. Did you mean 'paper'?"),
        (
            ["--set", "agent.episodes"],
            "--set takes key=value such as agent.gamma=0.9, found 'agent.episodes'",
        ),
        (["--set", "agent.episodes=x"], "agent.episodes must be a whole number from 0, found 'x'"),
        (
            ["--set", "seed=7"],
            "settings: a replay reads agent.*, search.matrix, search.norm, reward.scale, reward.stop, reward.head, found seed; give --seeds",
        ),
        (
            ["--set", "first.learning_rate=1e-5"],
            "reward.head, found first.learning_rate; leave it out",
        ),
        (["--set", "reward.caution=1"], "reward.head, found reward.caution; leave it out"),
        (["--set", "search.heads=3"], "reward.head, found search.heads; leave it out"),
        (["--set", "protocol=seen"], "reward.head, found protocol; set agent.episodes itself"),
        (["--seeds", "0"], "--seeds must be at least 1, found 0"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, run_auber, tables, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, printed, told = run_auber("regret", tables, *arguments)
    assert (code, printed) == (2, "")
    assert message in told
    assert told.count("\n") == 1


def test_a_folder_in_the_place_of_the_result(run_auber, tables, tmp_path):
    (tmp_path / "x.json").mkdir()
    code, _, told = run_auber("regret", tables, "--out", tmp_path / "x.json")
    assert code == 2
    assert "x.json: must be a file in a folder that can be written to; choose another --out" in told
