from __future__ import annotations

import copy

import pytest

from auber.errors import RunError
from auber.report.figures import to_svg
from auber.system.records import parse
from benchmarks.regret.report import Regret, draw_regret, summarise

BUDGETS = (50, 100, 200, 300)
REWARDS = (1, *range(10, 301, 10))


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


def regret(**changes):
    return parse(Regret, {**make_regret(), **changes}, "regret.json", "measure it again")


def test_the_summary_has_the_mean_of_all_layers_and_tasks():
    panels = [make_regret(task)["panels"][0] for task in ("toys", "cats")]
    for layer in panels[1]["layers"]:
        layer["searches"]["paper"]["100"] = {"mean": 0.7, "plays": [0.6, 0.8]}
    for layer in panels[0]["layers"]:
        layer["searches"]["paper"]["100"] = {"mean": 0.5, "plays": [0.5, 0.5]}
    table = summarise(regret(panels=panels)).set_index("player")
    assert table["layers"].tolist() == ["4", "4", "4"]
    # of 0.55 and 0.65 with one degree of freedom: 12.706 * 0.05
    assert table.loc["DQN, preset paper", "after 100"] == "0.600 ± 0.635"
    assert table.loc["random masks, in expectation", "after 300"] == "0.800"


@pytest.mark.parametrize("panels", [1, 2, 4])
def test_the_legend_of_the_regret_figure_is_within_it(panels):
    panel = make_regret()["panels"][0]
    figure = draw_regret(regret(panels=[panel] * panels))
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
        regret(**changes)
