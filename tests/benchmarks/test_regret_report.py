from __future__ import annotations

import pytest

from auber.errors import RunError
from auber.report.figures import to_svg
from auber.report.results_file import ResultsFile
from benchmarks.regret.report import draw_regret, read_regret, regret_table
from tests.report.made import make_regret


def regret(**changes):
    return ResultsFile("regret.json", "auber regret", {**make_regret(), **changes})


def test_regret():
    found = read_regret(regret())
    table = regret_table(found)
    assert table.title == "Regret in points, 2 plays of each player on each layer"
    rows = table.data.set_index("search")
    assert rows.loc["agent, preset paper", ["task", "layers", "after 50 rewards"]].tolist() == [
        *("toys", 2, "0.50 (0.00 to 2.40)"),
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
        read_regret(regret(**changes))
