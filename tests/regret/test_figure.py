"""The figure is made from a result alone; so is the kept one, and what is kept agrees with the kept tables."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from auber.regret.figure import draw_regret
from auber.regret.replay import BUDGETS
from auber.regret.result import measure_regret
from auber.regret.tables import read_tables
from auber.system.progress import Progress
from tests.regret.made import make_run
from tests.regret.test_result import QUICK

SVG = "{http://www.w3.org/2000/svg}"
KEPT = Path(__file__).parents[2] / "results" / "regret"


@pytest.fixture(scope="module")
def result():
    runs = [
        replace(make_run(task), model=model)
        for model in ("one <model>", "two")
        for task in ("a", "b")
    ]
    return measure_regret(runs, ["paper", "default"], 2, Progress(), QUICK)


def test_everything_is_drawn_inside_the_picture(result):
    root = ET.fromstring(draw_regret(result))
    width, height = float(root.get("width")), float(root.get("height"))
    lines, circles = root.findall(f"{SVG}polyline"), root.findall(f"{SVG}circle")
    assert len(lines) == 4 * 4 * (2 + 1)  # panels, searches, two layers and the mean
    assert len(circles) == 4 * 4 * len(BUDGETS)
    places = [
        tuple(map(float, pair.split(","))) for line in lines for pair in line.get("points").split()
    ]
    places += [(float(circle.get("cx")), float(circle.get("cy"))) for circle in circles]
    places += [(float(text.get("x")), float(text.get("y"))) for text in root.iter(f"{SVG}text")]
    assert all(0 <= x <= width and 0 <= y <= height for x, y in places)
    words = [item.text for item in root.iter(f"{SVG}text")]
    for expected in (
        "a: regret, points of accuracy",
        "one <model>, seen, 2 layers",
        "agent, preset paper",
        "greedy",
        "300",
    ):
        assert expected in words


def test_a_smaller_regret_is_lower_and_more_rewards_are_further_right(result):
    mean = ET.fromstring(draw_regret(result)).findall(f"{SVG}polyline")[
        8:12
    ]  # after the eight single layers' lines
    for line in mean:
        places = [tuple(map(float, pair.split(","))) for pair in line.get("points").split()]
        assert [x for x, _ in places] == sorted(x for x, _ in places)
        assert [y for _, y in places] == sorted(y for _, y in places)  # pixels count downwards


def test_the_same_numbers_give_the_same_bytes(result):
    assert draw_regret(result) == draw_regret(json.loads(json.dumps(result)))


def test_nothing_missed_is_drawn_all_the_same():
    run = make_run(layers=(0,), num_heads=3)
    (table,) = run.layers
    flat = replace(run, layers=(replace(table, scores=(0.5,) * len(table.scores)),))
    root = ET.fromstring(draw_regret(measure_regret([flat], ["paper"], 1, Progress(), QUICK)))
    assert "1 layer" in " ".join(item.text for item in root.iter(f"{SVG}text"))


def test_the_kept_figure_is_made_from_the_kept_result():
    if not (KEPT / "regret.json").is_file():
        pytest.skip("no result is kept in results/regret")
    kept = json.loads((KEPT / "regret.json").read_text(encoding="utf-8"))
    assert (KEPT / "regret.svg").read_text(encoding="utf-8") == draw_regret(kept)


def test_the_kept_result_agrees_with_the_kept_tables():
    """What has no chance in it must come out the same anywhere: optimum, greedy and random search."""
    if not (KEPT / "tables.json").is_file():
        pytest.skip("no tables are kept in results/regret")
    kept = json.loads((KEPT / "regret.json").read_text(encoding="utf-8"))
    anew = measure_regret(
        read_tables([KEPT / "tables.json"]), ["paper"], 1, Progress(), {"agent.episodes": 0}
    )
    assert len(kept["panels"]) == len(anew["panels"])
    for panel, again in zip(kept["panels"], anew["panels"], strict=True):
        assert [panel[key] for key in ("model", "task", "protocol")] == [
            again[key] for key in ("model", "task", "protocol")
        ]
        for layer, layer_again in zip(panel["layers"], again["layers"], strict=True):
            assert layer["optimum"] == layer_again["optimum"]
            for search in ("greedy", "random"):
                curves = (each["searches"][search]["regret"] for each in (layer, layer_again))
                assert next(curves) == pytest.approx(next(curves), abs=1e-5)
