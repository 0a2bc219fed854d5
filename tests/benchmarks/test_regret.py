"""Regret: expectations by enumeration, the optimum of a known table, and the kept result."""

from __future__ import annotations

import copy
import itertools
import json
from statistics import fmean

import pytest

from auber.config import make_config
from auber.errors import ConfigError, RunError
from auber.report.figures import to_svg
from auber.search.players.exhaustive import all_masks
from auber.system.progress import Progress
from auber.system.records import parse
from benchmarks.common import ROOT
from benchmarks.regret import __main__ as regret
from benchmarks.regret.replay import REWARDS, expected_regret, play_agent, play_search
from benchmarks.regret.result import Regret, draw_regret, measure_regret, summarise
from benchmarks.regret.tables import LayerTable, RunTables, read_tables

KEPT = ROOT / "results" / "regret"

BUDGETS = (50, 100, 200, 300)


def make_regret(task="toys"):
    """A result of two layers, where an agent misses half a point and random search more."""
    amounts = {"paper": 0.5, "greedy": 0.6, "random": 0.8}
    means = {
        search: {
            "regret": [amount] * len(REWARDS),
            **{
                str(budget): {
                    "mean": amount,
                    "over_layers": {"n": 2, "interval": [-1.4, 2.4] if search == "paper" else None},
                }
                for budget in BUDGETS
            },
        }
        for search, amount in amounts.items()
    }
    layers = [{"layer": layer, "searches": copy.deepcopy(means)} for layer in (0, 2)]
    recorded = [{"seed": 0, "command": "auber prune --method exhaustive", "provenance": {}}]
    names = {"model": "made-up", "task": task, "metric": "accuracy", "protocol": "seen"}
    return {
        "format": 1,
        "kind": "auber regret",
        "command": "python -m benchmarks.regret runs/all",
        "seeds": 2,
        "rewards": list(REWARDS),
        "panels": [{**names, "recorded": recorded, "layers": layers, "mean": means}],
    }


def make_table(layer=0, num_heads=4, score=None):
    """A table on which removing heads 1 and 3 is best, by default."""
    score = score or (lambda mask: 0.5 + 0.1 * len({*mask} & {1, 3}) - 0.1 * len({*mask} & {0, 2}))
    state = tuple(0.1 * head for head in range(num_heads))
    return LayerTable(
        layer=layer,
        heads=tuple(range(num_heads)),
        reward_rows=40,
        states={"value": {"l1": state, "l2": state}},
        scores=tuple(score(mask) for mask in all_masks(range(num_heads))),
    )


def make_run(**changes):
    facts = {"model": "m", "task": "toys", "metric": "accuracy", "protocol": "seen", "seed": 0}
    facts |= {"provenance": {}, "layers": (make_table(),)}
    return RunTables(**(facts | changes))


@pytest.mark.parametrize("rewards", range(1, 6))
def test_the_expectation_is_that_of_all_draws(rewards):
    scores = [0.3, 0.5, 0.1, 0.9, 0.4]
    draws = itertools.combinations(scores[1:], rewards - 1)
    by_hand = fmean(max(scores) - max((scores[0], *drawn)) for drawn in draws)
    assert expected_regret(scores, rewards) == pytest.approx(by_hand)


def test_greedy_finds_the_optimum_of_separate_heads():
    play = play_search(make_table(), "greedy", make_config("paper"), 0)
    assert (play.numbers["choice"], play.numbers["50"]) == (0, 0)
    assert play.numbers["rewards"] == 1 + 4 + 3 + 2


def test_greedy_misses_what_pays_only_together():
    table = make_table(score=lambda mask: {(): 0.5, (0, 1): 0.9}.get(mask, 0.4))
    assert play_search(table, "greedy", make_config("paper"), 0).numbers["choice"] == pytest.approx(
        40
    )


@pytest.mark.parametrize("name", ["surrogate", "evolution"])
def test_a_search_finds_what_pays_only_together(name):
    table = make_table(num_heads=6, score=lambda mask: 0.5 + 0.4 * ({0, 1} <= {*mask}))
    play = play_search(table, name, make_config("paper"), 3)
    assert (play.numbers["50"], play.numbers["choice"]) == (0, 0)
    assert play == play_search(table, name, make_config("paper"), 3)


def test_an_agent_that_sees_all_masks_has_no_regret():
    settings = {"agent.episodes": 60, "agent.learning_starts": 8, "agent.hidden_size": 16}
    config = make_config("paper", settings=settings)
    play = play_agent(make_table(), "paper", config, seed=0)
    assert play.numbers["300"] == pytest.approx(0)
    assert play == play_agent(make_table(), "paper", config, seed=0)


def test_means_and_intervals():
    run = make_run(layers=(make_table(), make_table(1, score=lambda mask: 0.5)))
    result = measure_regret([run], ["surrogate", "greedy", "random"], 2, Progress())
    (panel,) = result.panels
    assert result.rewards == REWARDS
    assert [layer.layer for layer in panel.layers] == [0, 1]
    assert panel.layers[0].optimum == {"removed": [1, 3], "score": 0.7}
    assert panel.curve("random")[0] == pytest.approx(10)  # of 20 and 0
    random = panel.over_layers["random"]["50"]
    assert (random["n"], random["mean"], random["low"]) == (2, 0.0, None)
    searches = panel.layers[0].searches
    assert searches["greedy"].numbers["choice"].plays is None
    assert len(searches["surrogate"].numbers["choice"].plays) == 2


@pytest.mark.parametrize(
    ("players", "settings", "message"),
    [
        (["papper"], {}, "Unknown player 'papper'. Did you mean 'paper'"),
        (["paper"], {"first.epochs": 3}, "first.epochs"),
    ],
)
def test_what_no_replay_knows_is_refused(players, settings, message):
    with pytest.raises(ConfigError, match=message):
        measure_regret([make_run()], players, 1, Progress(), settings)


def test_an_exhaustive_run_is_recorded(tmp_path, run_auber):
    golden = ROOT / "tests" / "golden"
    words = ["prune", "--model", golden / "model", "--train", golden / "train.csv"]
    words += ["--dev", golden / "dev.csv", "--method", "exhaustive", "--preset", "paper"]
    for setting in ("threads=1", "max_length=16", "layer.epochs=0", "last.epochs=0"):
        words += ["--set", setting]
    code, _, errors = run_auber(*words, "--set", "first.epochs=1", "--out", tmp_path / "run")
    assert code == 0, errors
    (run,) = read_tables([tmp_path / "run"])
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert [list(table.best) for table in run.layers] == [
        result["plan"]["heads"].get(str(table.layer), []) for table in run.layers
    ]
    regret.main([str(tmp_path / "run"), "--tables", str(tmp_path / "tables.json")])
    assert read_tables([tmp_path / "tables.json"]) == [run]
    result["method"] = "auber"
    (tmp_path / "run" / "result.json").write_text(json.dumps(result))
    with pytest.raises(RunError, match="must be a run of method exhaustive"):
        read_tables([tmp_path / "run"])


def test_the_kept_tables_give_the_kept_result(tmp_path, capsys):
    words = [str(KEPT / name) for name in ("tables.json", "blocks.json")]
    words += ["--players", "surrogate,greedy,random", "--seeds", "1"]
    regret.main([*words, "--out", str(tmp_path / "out.json")])
    found, kept = (
        json.loads(path.read_text()) for path in (tmp_path / "out.json", KEPT / "regret.json")
    )
    for mine, theirs in zip(found["panels"], kept["panels"], strict=True):
        for search in ("greedy", "random"):
            for one, other in zip(mine["layers"], theirs["layers"], strict=True):
                assert one["searches"][search] == other["searches"][search]
    assert (tmp_path / "out.svg").read_text().startswith("<")
    assert "random masks, in expectation" in capsys.readouterr().out


def parse_regret(**changes):
    return parse(Regret, {**make_regret(), **changes}, "regret.json", "measure it again")


def test_the_summary_has_the_mean_of_all_layers_and_tasks():
    panels = [make_regret(task)["panels"][0] for task in ("toys", "cats")]
    for layer in panels[1]["layers"]:
        layer["searches"]["paper"]["100"] = {"mean": 0.7, "plays": [0.6, 0.8]}
    for layer in panels[0]["layers"]:
        layer["searches"]["paper"]["100"] = {"mean": 0.5, "plays": [0.5, 0.5]}
    table = summarise(parse_regret(panels=panels)).set_index("player")
    assert table["layers"].tolist() == ["4", "4", "4"]
    # of 0.55 and 0.65 with one degree of freedom: 12.706 * 0.05
    assert table.loc["DQN, preset paper", "after 100"] == "0.600 ± 0.635"
    assert table.loc["random masks, in expectation", "after 300"] == "0.800"


@pytest.mark.parametrize("panels", [1, 2, 4])
def test_the_legend_of_the_regret_figure_is_within_it(panels):
    panel = make_regret()["panels"][0]
    figure = draw_regret(parse_regret(panels=[panel] * panels))
    assert "random masks, in expectation" in to_svg(figure)
    box, whole = figure.legends[0].get_window_extent(), figure.bbox
    assert whole.x0 <= box.x0 < box.x1 <= whole.x1
    assert whole.y0 <= box.y0 < box.y1 <= whole.y1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "'format' must be 1, found 2; .* measure it again$"),
        ({"panels": []}, "'panels' must be at least 1 entries long"),
        ({"panels": [{}]}, "lacks 'panels.0.model'"),
    ],
)
def test_damage_is_named(changes, message):
    with pytest.raises(RunError, match=f"^regret.json: {message}"):
        parse_regret(**changes)
