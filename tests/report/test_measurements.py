from __future__ import annotations

import pytest

from auber.errors import RunError
from auber.report.figures import to_svg
from auber.report.measurements import (
    draw_regret,
    read_regret,
    read_speed,
    regret_table,
    speed_tables,
)
from auber.report.results_file import ResultsFile
from tests.report.made import make_regret, make_speed


def regret(**changes):
    return ResultsFile("regret.json", "auber regret", {**make_regret(), **changes})


def speed(**changes):
    return ResultsFile("speed.json", "speed", {**make_speed().to_json(), **changes})


def test_regret():
    found = read_regret(regret())
    table = regret_table(found)
    assert table.title == "Regret in points, 2 plays of each agent on each layer"
    rows = table.data.set_index("search")
    assert rows.loc["agent, preset paper", ["task", "layers", "after 50 rewards"]].tolist() == [
        *("toys", 2, "0.50 (-1.40 to 2.40)"),
    ]
    assert rows.loc["random masks, in expectation", "after 300 rewards"] == "0.80"


@pytest.mark.parametrize("panels", [1, 2, 4])
def test_the_legend_of_the_regret_figure_is_within_it(panels):
    panel = make_regret()["panels"][0]
    figure = draw_regret(read_regret(regret(panels=[panel] * panels)))
    assert "random masks, in expectation" in to_svg(figure)
    box, whole = figure.legends[0].get_window_extent(), figure.bbox
    assert whole.x0 <= box.x0 < box.x1 <= whole.x1
    assert whole.y0 <= box.y0 < box.y1 <= whole.y1


def test_speed():
    sizes, ratios, times = speed_tables(read_speed(speed()))
    (row,) = sizes.data.to_numpy().tolist()
    assert row[:3] == ["rte auber seed 0", "40 of 144", "3,000 of 36,864"]
    assert "128 tokens" in sizes.notes[0]
    assert "torch on a GPU: there is none here" in sizes.notes[1]
    (row,) = ratios.data.to_numpy().tolist()
    assert row[1:] == ["pruned", "2.00 (2.00 to 2.00)", "0.80 (0.80 to 0.80)"]
    setting, *columns = times.data.iloc[1, 1:4]
    assert (setting, *columns) == ("torch, cpu, float32, batch 1", "pruned", "20 (20 to 20)")


def bad_speed_run():
    (run,) = make_speed().to_json()["runs"]
    return {**run, "parameters": {"unpruned": 0, "pruned": 0}}


@pytest.mark.parametrize(
    ("read", "file", "message"),
    [
        (read_regret, regret(format=2), "'format' must be 1, found 2; .* measure it again$"),
        (read_regret, regret(panels=[]), "'panels' must be at least 1 entries long"),
        (read_regret, regret(panels=[{}]), "lacks 'panels.0.model'"),
        (read_speed, speed(format=1), "'format' must be 2, found 1; .* measure it again$"),
        (read_speed, speed(runs=[]), "'runs' must "),
        (
            read_speed,
            speed(runs=[bad_speed_run()]),
            "'runs.0.parameters.unpruned' must be at least 1, found 0",
        ),
    ],
)
def test_damage_is_named(read, file, message):
    with pytest.raises(RunError, match=f"^{file.name}: {message}"):
        read(file)
